"""OffsetCommit: store the positions of a group. Version 9 serves the new group protocol."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Int16, Int32, Int64, String


@struct
class OffsetCommitRequestPartition(Message):
    partition_index: int = wire(Int32)
    committed_offset: int = wire(Int64)
    committed_leader_epoch: int = wire(Int32, "6+", ignorable=True, default=-1)
    commit_timestamp: int = wire(Int64, "1", default=-1)
    committed_metadata: str | None = wire(String, nullable="0+")


@struct
class OffsetCommitRequestTopic(Message):
    name: str = wire(String)
    partitions: list[OffsetCommitRequestPartition] = wire(Array(OffsetCommitRequestPartition))


@message("0-9", flexible="8+")
class OffsetCommitRequest(Message):
    group_id: str = wire(String)
    generation_id_or_member_epoch: int = wire(Int32, "1+", ignorable=True, default=-1)
    member_id: str = wire(String, "1+", ignorable=True, default="")
    group_instance_id: str | None = wire(String, "7+", nullable="7+", default=None)
    retention_time_ms: int = wire(Int64, "2-4", ignorable=True, default=-1)
    topics: list[OffsetCommitRequestTopic] = wire(Array(OffsetCommitRequestTopic))


@struct
class OffsetCommitResponsePartition(Message):
    partition_index: int = wire(Int32)
    error_code: int = wire(Int16)


@struct
class OffsetCommitResponseTopic(Message):
    name: str = wire(String)
    partitions: list[OffsetCommitResponsePartition] = wire(Array(OffsetCommitResponsePartition))


@message("0-9", flexible="8+")
class OffsetCommitResponse(Message):
    throttle_time_ms: int = wire(Int32, "3+", ignorable=True, default=0)
    topics: list[OffsetCommitResponseTopic] = wire(Array(OffsetCommitResponseTopic))
