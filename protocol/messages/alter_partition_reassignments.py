"""AlterPartitionReassignments: begin or cancel moving partitions to other brokers."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Int16, Int32, String


@struct
class ReassignablePartition(Message):
    partition_index: int = wire(Int32)
    replicas: list[int] | None = wire(Array(Int32), nullable="0+", default=None)


@struct
class ReassignableTopic(Message):
    name: str = wire(String)
    partitions: list[ReassignablePartition] = wire(Array(ReassignablePartition))


@message("0", flexible="0+")
class AlterPartitionReassignmentsRequest(Message):
    timeout_ms: int = wire(Int32, default=60000)
    topics: list[ReassignableTopic] = wire(Array(ReassignableTopic))


@struct
class ReassignablePartitionResponse(Message):
    partition_index: int = wire(Int32)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, nullable="0+")


@struct
class ReassignableTopicResponse(Message):
    name: str = wire(String)
    partitions: list[ReassignablePartitionResponse] = wire(Array(ReassignablePartitionResponse))


@message("0", flexible="0+")
class AlterPartitionReassignmentsResponse(Message):
    throttle_time_ms: int = wire(Int32)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, nullable="0+")
    responses: list[ReassignableTopicResponse] = wire(Array(ReassignableTopicResponse))
