"""UndeleteTopics: list deleted topics that are kept, and bring some back. Ours alone: Kafka has no such API."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Boolean, Int16, Int32, Int64, String, Uuid


@struct
class UndeletableTopic(Message):
    topic_id: bytes = wire(Uuid)
    # The name that it gets; null for the one that it had.
    new_name: str | None = wire(String, nullable="0+", default=None)


@message("0", flexible="0+")
class UndeleteTopicsRequest(Message):
    # Null lists all of them.
    topics: list[UndeletableTopic] | None = wire(Array(UndeletableTopic), nullable="0+", default=None)
    timeout_ms: int = wire(Int32, default=60000)
    validate_only: bool = wire(Boolean, default=False)


@struct
class UndeletableTopicResult(Message):
    # In a list: why the topic cannot be brought back now.
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, nullable="0+", default=None)
    topic_id: bytes = wire(Uuid)
    # The name that it had, in a list; otherwise the one that it has now.
    name: str | None = wire(String, nullable="0+", default=None)
    deleted_ms: int = wire(Int64, default=-1)
    kept_until_ms: int = wire(Int64, default=-1)
    partitions: int = wire(Int32, default=-1)
    # Brokers that have given up their replicas for the space.
    given_up_by: list[int] = wire(Array(Int32), factory=list)


@message("0", flexible="0+")
class UndeleteTopicsResponse(Message):
    throttle_time_ms: int = wire(Int32)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, nullable="0+")
    topics: list[UndeletableTopicResult] = wire(Array(UndeletableTopicResult))
