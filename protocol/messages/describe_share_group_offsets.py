"""DescribeShareGroupOffsets: start offsets of a share group."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Int16, Int32, Int64, String, Uuid


@struct
class DescribeShareGroupOffsetsRequestTopic(Message):
    topic_name: str = wire(String)
    partitions: list[int] = wire(Array(Int32))


@struct
class DescribeShareGroupOffsetsRequestGroup(Message):
    group_id: str = wire(String)
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = wire(
        Array(DescribeShareGroupOffsetsRequestTopic), nullable="0+"
    )


@message("0-1", flexible="0+")
class DescribeShareGroupOffsetsRequest(Message):
    groups: list[DescribeShareGroupOffsetsRequestGroup] = wire(Array(DescribeShareGroupOffsetsRequestGroup))


@struct
class DescribeShareGroupOffsetsResponsePartition(Message):
    partition_index: int = wire(Int32)
    start_offset: int = wire(Int64)
    leader_epoch: int = wire(Int32)
    lag: int = wire(Int64, "1+", ignorable=True, default=-1)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, nullable="0+", default=None)


@struct
class DescribeShareGroupOffsetsResponseTopic(Message):
    topic_name: str = wire(String)
    topic_id: bytes = wire(Uuid)
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = wire(
        Array(DescribeShareGroupOffsetsResponsePartition)
    )


@struct
class DescribeShareGroupOffsetsResponseGroup(Message):
    group_id: str = wire(String)
    topics: list[DescribeShareGroupOffsetsResponseTopic] = wire(Array(DescribeShareGroupOffsetsResponseTopic))
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, nullable="0+", default=None)


@message("0-1", flexible="0+")
class DescribeShareGroupOffsetsResponse(Message):
    throttle_time_ms: int = wire(Int32)
    groups: list[DescribeShareGroupOffsetsResponseGroup] = wire(Array(DescribeShareGroupOffsetsResponseGroup))
