"""ListOffsets: the first, the last, or the offset at a timestamp. Version 0 answers several."""

from __future__ import annotations

from typing import Final

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Int8, Int16, Int32, Int64, String

# Instead of a timestamp. LATEST and EARLIEST are the end and the start of the log.
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5


@struct
class ListOffsetsPartition(Message):
    partition_index: int = wire(Int32)
    current_leader_epoch: int = wire(Int32, "4+", ignorable=True, default=-1)
    timestamp: int = wire(Int64)
    max_num_offsets: int = wire(Int32, "0", default=1)
    # Ours alone, like the times in the response: Kafka's brokers ignore it. Asks for the times of records.
    record_offsets: list[int] = wire(Array(Int64), "6+", tag=10_000, ignorable=True, factory=list)


@struct
class ListOffsetsTopic(Message):
    name: str = wire(String)
    partitions: list[ListOffsetsPartition] = wire(Array(ListOffsetsPartition))


@message("0-9", flexible="6+")
class ListOffsetsRequest(Message):
    replica_id: int = wire(Int32)
    isolation_level: int = wire(Int8, "2+", default=0)
    topics: list[ListOffsetsTopic] = wire(Array(ListOffsetsTopic))


@struct
class ListOffsetsPartitionResponse(Message):
    partition_index: int = wire(Int32)
    error_code: int = wire(Int16)
    old_style_offsets: list[int] = wire(Array(Int64), "0", factory=list)
    timestamp: int = wire(Int64, "1+", default=-1)
    offset: int = wire(Int64, "1+", default=-1)
    leader_epoch: int = wire(Int32, "4+", default=-1)
    # For each of the record offsets of the request, in their order; -1 if the time is not known.
    record_timestamps: list[int] = wire(Array(Int64), "6+", tag=10_000, ignorable=True, factory=list)


@struct
class ListOffsetsTopicResponse(Message):
    name: str = wire(String)
    partitions: list[ListOffsetsPartitionResponse] = wire(Array(ListOffsetsPartitionResponse))


@message("0-9", flexible="6+")
class ListOffsetsResponse(Message):
    throttle_time_ms: int = wire(Int32, "2+", ignorable=True, default=0)
    topics: list[ListOffsetsTopicResponse] = wire(Array(ListOffsetsTopicResponse))
