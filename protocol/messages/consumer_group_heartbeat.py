"""ConsumerGroupHeartbeat: membership, subscription and assignment in the new group protocol."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Int16, Int32, String, Uuid


@struct
class RequestTopicPartitions(Message):
    topic_id: bytes = wire(Uuid)
    partitions: list[int] = wire(Array(Int32))


@message("0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest(Message):
    group_id: str = wire(String)
    member_id: str = wire(String)
    member_epoch: int = wire(Int32)
    instance_id: str | None = wire(String, nullable="0+", default=None)
    rack_id: str | None = wire(String, nullable="0+", default=None)
    rebalance_timeout_ms: int = wire(Int32, default=-1)
    subscribed_topic_names: list[str] | None = wire(Array(String), nullable="0+", default=None)
    subscribed_topic_regex: str | None = wire(String, "1+", nullable="1+", default=None)
    server_assignor: str | None = wire(String, nullable="0+", default=None)
    topic_partitions: list[RequestTopicPartitions] | None = wire(
        Array(RequestTopicPartitions), nullable="0+", default=None
    )


@struct
class ResponseTopicPartitions(Message):
    topic_id: bytes = wire(Uuid)
    partitions: list[int] = wire(Array(Int32))


@struct
class Assignment(Message):
    topic_partitions: list[ResponseTopicPartitions] = wire(Array(ResponseTopicPartitions))


@message("0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse(Message):
    throttle_time_ms: int = wire(Int32)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, nullable="0+", default=None)
    member_id: str | None = wire(String, nullable="0+", default=None)
    member_epoch: int = wire(Int32)
    heartbeat_interval_ms: int = wire(Int32)
    assignment: Assignment | None = wire(Assignment, nullable="0+", default=None)
