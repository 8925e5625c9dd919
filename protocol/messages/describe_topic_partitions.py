"""DescribeTopicPartitions: topics page by page."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Boolean, Int16, Int32, String, Uuid


@struct
class TopicRequest(Message):
    name: str = wire(String)


@struct
class RequestCursor(Message):
    topic_name: str = wire(String)
    partition_index: int = wire(Int32)


@message("0", flexible="0+")
class DescribeTopicPartitionsRequest(Message):
    topics: list[TopicRequest] = wire(Array(TopicRequest))
    response_partition_limit: int = wire(Int32, default=2000)
    cursor: RequestCursor | None = wire(RequestCursor, nullable="0+", default=None)


@struct
class DescribeTopicPartitionsResponsePartition(Message):
    error_code: int = wire(Int16)
    partition_index: int = wire(Int32)
    leader_id: int = wire(Int32)
    leader_epoch: int = wire(Int32, default=-1)
    replica_nodes: list[int] = wire(Array(Int32))
    isr_nodes: list[int] = wire(Array(Int32))
    eligible_leader_replicas: list[int] | None = wire(Array(Int32), nullable="0+", default=None)
    last_known_elr: list[int] | None = wire(Array(Int32), nullable="0+", default=None)
    offline_replicas: list[int] = wire(Array(Int32))


@struct
class DescribeTopicPartitionsResponseTopic(Message):
    error_code: int = wire(Int16)
    name: str | None = wire(String, nullable="0+")
    topic_id: bytes = wire(Uuid)
    is_internal: bool = wire(Boolean, default=False)
    partitions: list[DescribeTopicPartitionsResponsePartition] = wire(Array(DescribeTopicPartitionsResponsePartition))
    topic_authorized_operations: int = wire(Int32, default=-2147483648)


@struct
class ResponseCursor(Message):
    topic_name: str = wire(String)
    partition_index: int = wire(Int32)


@message("0", flexible="0+")
class DescribeTopicPartitionsResponse(Message):
    throttle_time_ms: int = wire(Int32)
    topics: list[DescribeTopicPartitionsResponseTopic] = wire(Array(DescribeTopicPartitionsResponseTopic))
    next_cursor: ResponseCursor | None = wire(ResponseCursor, nullable="0+", default=None)
