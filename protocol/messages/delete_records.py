"""DeleteRecords: advance the log start of partitions."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Int16, Int32, Int64, String


@struct
class DeleteRecordsPartition(Message):
    partition_index: int = wire(Int32)
    offset: int = wire(Int64)


@struct
class DeleteRecordsTopic(Message):
    name: str = wire(String)
    partitions: list[DeleteRecordsPartition] = wire(Array(DeleteRecordsPartition))


@message("0-2", flexible="2+")
class DeleteRecordsRequest(Message):
    topics: list[DeleteRecordsTopic] = wire(Array(DeleteRecordsTopic))
    timeout_ms: int = wire(Int32)


@struct
class DeleteRecordsPartitionResult(Message):
    partition_index: int = wire(Int32)
    low_watermark: int = wire(Int64)
    error_code: int = wire(Int16)


@struct
class DeleteRecordsTopicResult(Message):
    name: str = wire(String)
    partitions: list[DeleteRecordsPartitionResult] = wire(Array(DeleteRecordsPartitionResult))


@message("0-2", flexible="2+")
class DeleteRecordsResponse(Message):
    throttle_time_ms: int = wire(Int32)
    topics: list[DeleteRecordsTopicResult] = wire(Array(DeleteRecordsTopicResult))
