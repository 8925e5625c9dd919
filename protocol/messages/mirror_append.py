"""MirrorAppend: append batches of another cluster at the offsets that they have there. Ours alone, not Kafka's."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Int16, Int32, Int64, RecordData, Records, String


@struct
class MirrorAppendPartition(Message):
    partition_index: int = wire(Int32)
    # Where the log must end for the batches to be appended.
    log_end_offset: int = wire(Int64)
    # Where the log starts in the other cluster.
    log_start_offset: int = wire(Int64)
    records: RecordData | None = wire(Records, nullable="0+", default=None)


@struct
class MirrorAppendTopic(Message):
    name: str = wire(String)
    partitions: list[MirrorAppendPartition] = wire(Array(MirrorAppendPartition))


@message("0", flexible="0+")
class MirrorAppendRequest(Message):
    timeout_ms: int = wire(Int32)
    topics: list[MirrorAppendTopic] = wire(Array(MirrorAppendTopic))


@struct
class MirrorAppendPartitionResult(Message):
    partition_index: int = wire(Int32)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, nullable="0+", default=None)
    # Where the log starts and ends now; -1 if this broker does not lead the partition.
    log_start_offset: int = wire(Int64, default=-1)
    log_end_offset: int = wire(Int64, default=-1)


@struct
class MirrorAppendTopicResult(Message):
    name: str = wire(String)
    partitions: list[MirrorAppendPartitionResult] = wire(Array(MirrorAppendPartitionResult))


@message("0", flexible="0+")
class MirrorAppendResponse(Message):
    throttle_time_ms: int = wire(Int32)
    topics: list[MirrorAppendTopicResult] = wire(Array(MirrorAppendTopicResult))
