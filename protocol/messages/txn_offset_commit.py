"""TxnOffsetCommit: commit the positions of a group within a transaction."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Int16, Int32, Int64, String


@struct
class TxnOffsetCommitRequestPartition(Message):
    partition_index: int = wire(Int32)
    committed_offset: int = wire(Int64)
    committed_leader_epoch: int = wire(Int32, "2+", ignorable=True, default=-1)
    committed_metadata: str | None = wire(String, nullable="0+")


@struct
class TxnOffsetCommitRequestTopic(Message):
    name: str = wire(String)
    partitions: list[TxnOffsetCommitRequestPartition] = wire(Array(TxnOffsetCommitRequestPartition))


@message("0-4", flexible="3+")
class TxnOffsetCommitRequest(Message):
    transactional_id: str = wire(String)
    group_id: str = wire(String)
    producer_id: int = wire(Int64)
    producer_epoch: int = wire(Int16)
    generation_id: int = wire(Int32, "3+", default=-1)
    member_id: str = wire(String, "3+", default="")
    group_instance_id: str | None = wire(String, "3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = wire(Array(TxnOffsetCommitRequestTopic))


@struct
class TxnOffsetCommitResponsePartition(Message):
    partition_index: int = wire(Int32)
    error_code: int = wire(Int16)


@struct
class TxnOffsetCommitResponseTopic(Message):
    name: str = wire(String)
    partitions: list[TxnOffsetCommitResponsePartition] = wire(Array(TxnOffsetCommitResponsePartition))


@message("0-4", flexible="3+")
class TxnOffsetCommitResponse(Message):
    throttle_time_ms: int = wire(Int32)
    topics: list[TxnOffsetCommitResponseTopic] = wire(Array(TxnOffsetCommitResponseTopic))
