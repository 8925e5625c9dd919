"""CreatePartitions: raise the partition count of topics."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Boolean, Int16, Int32, String


@struct
class CreatePartitionsAssignment(Message):
    broker_ids: list[int] = wire(Array(Int32))


@struct
class CreatePartitionsTopic(Message):
    name: str = wire(String)
    count: int = wire(Int32)
    assignments: list[CreatePartitionsAssignment] | None = wire(Array(CreatePartitionsAssignment), nullable="0+")


@message("0-3", flexible="2+")
class CreatePartitionsRequest(Message):
    topics: list[CreatePartitionsTopic] = wire(Array(CreatePartitionsTopic))
    timeout_ms: int = wire(Int32)
    validate_only: bool = wire(Boolean)


@struct
class CreatePartitionsTopicResult(Message):
    name: str = wire(String)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, nullable="0+", default=None)


@message("0-3", flexible="2+")
class CreatePartitionsResponse(Message):
    throttle_time_ms: int = wire(Int32)
    results: list[CreatePartitionsTopicResult] = wire(Array(CreatePartitionsTopicResult))
