"""ConsumerGroupDescribe: state and members of groups of the new protocol."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Boolean, Int8, Int16, Int32, String, Uuid


@message("0-1", flexible="0+")
class ConsumerGroupDescribeRequest(Message):
    group_ids: list[str] = wire(Array(String))
    include_authorized_operations: bool = wire(Boolean)


@struct
class TopicPartitions(Message):
    topic_id: bytes = wire(Uuid)
    topic_name: str = wire(String)
    partitions: list[int] = wire(Array(Int32))


@struct
class Assignment(Message):
    topic_partitions: list[TopicPartitions] = wire(Array(TopicPartitions))


@struct
class Member(Message):
    member_id: str = wire(String)
    instance_id: str | None = wire(String, nullable="0+", default=None)
    rack_id: str | None = wire(String, nullable="0+", default=None)
    member_epoch: int = wire(Int32)
    client_id: str = wire(String)
    client_host: str = wire(String)
    subscribed_topic_names: list[str] = wire(Array(String))
    subscribed_topic_regex: str | None = wire(String, nullable="0+", default=None)
    assignment: Assignment = wire(Assignment)
    target_assignment: Assignment = wire(Assignment)
    member_type: int = wire(Int8, "1+", ignorable=True, default=-1)


@struct
class DescribedGroup(Message):
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, nullable="0+", default=None)
    group_id: str = wire(String)
    group_state: str = wire(String)
    group_epoch: int = wire(Int32)
    assignment_epoch: int = wire(Int32)
    assignor_name: str = wire(String)
    members: list[Member] = wire(Array(Member))
    authorized_operations: int = wire(Int32, default=-2147483648)


@message("0-1", flexible="0+")
class ConsumerGroupDescribeResponse(Message):
    throttle_time_ms: int = wire(Int32)
    groups: list[DescribedGroup] = wire(Array(DescribedGroup))
