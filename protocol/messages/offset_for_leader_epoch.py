"""OffsetForLeaderEpoch: where a leader epoch ends, for truncation and its detection."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Int16, Int32, Int64, String


@struct
class OffsetForLeaderPartition(Message):
    partition: int = wire(Int32)
    current_leader_epoch: int = wire(Int32, "2+", ignorable=True, default=-1)
    leader_epoch: int = wire(Int32)


@struct
class OffsetForLeaderTopic(Message):
    topic: str = wire(String)
    partitions: list[OffsetForLeaderPartition] = wire(Array(OffsetForLeaderPartition))


@message("0-4", flexible="4+")
class OffsetForLeaderEpochRequest(Message):
    replica_id: int = wire(Int32, "3+", ignorable=True, default=-2)
    topics: list[OffsetForLeaderTopic] = wire(Array(OffsetForLeaderTopic))


@struct
class EpochEndOffset(Message):
    error_code: int = wire(Int16)
    partition: int = wire(Int32)
    leader_epoch: int = wire(Int32, "1+", ignorable=True, default=-1)
    end_offset: int = wire(Int64, default=-1)


@struct
class OffsetForLeaderTopicResult(Message):
    topic: str = wire(String)
    partitions: list[EpochEndOffset] = wire(Array(EpochEndOffset))


@message("0-4", flexible="4+")
class OffsetForLeaderEpochResponse(Message):
    throttle_time_ms: int = wire(Int32, "2+", ignorable=True, default=0)
    topics: list[OffsetForLeaderTopicResult] = wire(Array(OffsetForLeaderTopicResult))
