"""What group members tell each other inside JoinGroup and SyncGroup: an int16 version, then these fields."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Bytes, Int32, String


@struct
class ConsumerProtocolSubscriptionTopicPartition(Message):
    topic: str = wire(String)
    partitions: list[int] = wire(Array(Int32))


@message("0-3")
class ConsumerProtocolSubscription(Message):
    topics: list[str] = wire(Array(String))
    user_data: bytes | None = wire(Bytes, nullable="0+", default=None)
    owned_partitions: list[ConsumerProtocolSubscriptionTopicPartition] = wire(
        Array(ConsumerProtocolSubscriptionTopicPartition), "1+", ignorable=True, factory=list
    )
    generation_id: int = wire(Int32, "2+", ignorable=True, default=-1)
    rack_id: str | None = wire(String, "3+", nullable="3+", ignorable=True, default=None)


@struct
class ConsumerProtocolAssignmentTopicPartition(Message):
    topic: str = wire(String)
    partitions: list[int] = wire(Array(Int32))


@message("0-3")
class ConsumerProtocolAssignment(Message):
    assigned_partitions: list[ConsumerProtocolAssignmentTopicPartition] = wire(
        Array(ConsumerProtocolAssignmentTopicPartition)
    )
    user_data: bytes | None = wire(Bytes, nullable="0+", default=None)
