"""ShareGroupHeartbeat: membership of share groups."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Int16, Int32, String, Uuid


@message("1-1", flexible="0+")
class ShareGroupHeartbeatRequest(Message):
    group_id: str = wire(String)
    member_id: str = wire(String)
    member_epoch: int = wire(Int32)
    rack_id: str | None = wire(String, nullable="0+", default=None)
    subscribed_topic_names: list[str] | None = wire(Array(String), nullable="0+")


@struct
class TopicPartitions(Message):
    topic_id: bytes = wire(Uuid)
    partitions: list[int] = wire(Array(Int32))


@struct
class Assignment(Message):
    topic_partitions: list[TopicPartitions] = wire(Array(TopicPartitions))


@message("1-1", flexible="0+")
class ShareGroupHeartbeatResponse(Message):
    throttle_time_ms: int = wire(Int32)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, nullable="0+", default=None)
    member_id: str | None = wire(String, nullable="0+", default=None)
    member_epoch: int = wire(Int32)
    heartbeat_interval_ms: int = wire(Int32)
    assignment: Assignment | None = wire(Assignment, nullable="0+", default=None)
