"""DescribeLogDirs: sizes and lags of the replicas in each log directory."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Boolean, Int16, Int32, Int64, String


@struct
class DescribableLogDirTopic(Message):
    topic: str = wire(String)
    partitions: list[int] = wire(Array(Int32))


@message("0-4", flexible="2+")
class DescribeLogDirsRequest(Message):
    topics: list[DescribableLogDirTopic] | None = wire(Array(DescribableLogDirTopic), nullable="0+")


@struct
class DescribeLogDirsPartition(Message):
    partition_index: int = wire(Int32)
    partition_size: int = wire(Int64)
    offset_lag: int = wire(Int64)
    is_future_key: bool = wire(Boolean)


@struct
class DescribeLogDirsTopic(Message):
    name: str = wire(String)
    partitions: list[DescribeLogDirsPartition] = wire(Array(DescribeLogDirsPartition))


@struct
class DescribeLogDirsResult(Message):
    error_code: int = wire(Int16)
    log_dir: str = wire(String)
    topics: list[DescribeLogDirsTopic] = wire(Array(DescribeLogDirsTopic))
    total_bytes: int = wire(Int64, "4+", ignorable=True, default=-1)
    usable_bytes: int = wire(Int64, "4+", ignorable=True, default=-1)


@message("0-4", flexible="2+")
class DescribeLogDirsResponse(Message):
    throttle_time_ms: int = wire(Int32)
    error_code: int = wire(Int16, "3+", ignorable=True, default=0)
    results: list[DescribeLogDirsResult] = wire(Array(DescribeLogDirsResult))
