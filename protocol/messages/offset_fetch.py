"""OffsetFetch: read the positions of a group; of several groups from version 8."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Boolean, Int16, Int32, Int64, String


@struct
class OffsetFetchRequestTopic(Message):
    name: str = wire(String)
    partition_indexes: list[int] = wire(Array(Int32))


@struct
class OffsetFetchRequestTopics(Message):
    name: str = wire(String)
    partition_indexes: list[int] = wire(Array(Int32))


@struct
class OffsetFetchRequestGroup(Message):
    group_id: str = wire(String)
    member_id: str | None = wire(String, "9+", nullable="9+", ignorable=True, default=None)
    member_epoch: int = wire(Int32, "9+", ignorable=True, default=-1)
    topics: list[OffsetFetchRequestTopics] | None = wire(Array(OffsetFetchRequestTopics), nullable="8+")


@message("0-9", flexible="6+")
class OffsetFetchRequest(Message):
    group_id: str = wire(String, "0-7", default="")
    topics: list[OffsetFetchRequestTopic] | None = wire(
        Array(OffsetFetchRequestTopic), "0-7", nullable="2-7", factory=list
    )
    groups: list[OffsetFetchRequestGroup] = wire(Array(OffsetFetchRequestGroup), "8+", factory=list)
    require_stable: bool = wire(Boolean, "7+", default=False)
    # Ours alone, like the answer to it: Kafka's brokers ignore it. Asks when offsets have moved.
    with_moved_timestamps: bool = wire(Boolean, "8+", tag=10_000, ignorable=True, default=False)


@struct
class OffsetFetchResponsePartition(Message):
    partition_index: int = wire(Int32)
    committed_offset: int = wire(Int64)
    committed_leader_epoch: int = wire(Int32, "5-7", ignorable=True, default=-1)
    metadata: str | None = wire(String, nullable="0-7")
    error_code: int = wire(Int16)


@struct
class OffsetFetchResponseTopic(Message):
    name: str = wire(String)
    partitions: list[OffsetFetchResponsePartition] = wire(Array(OffsetFetchResponsePartition))


@struct
class OffsetFetchResponsePartitions(Message):
    partition_index: int = wire(Int32)
    committed_offset: int = wire(Int64)
    committed_leader_epoch: int = wire(Int32, default=-1)
    metadata: str | None = wire(String, nullable="8+")
    error_code: int = wire(Int16)
    # When the group committed this offset first; it may have committed the same offset again since.
    moved_timestamp: int = wire(Int64, "8+", tag=10_000, ignorable=True, default=-1)


@struct
class OffsetFetchResponseTopics(Message):
    name: str = wire(String)
    partitions: list[OffsetFetchResponsePartitions] = wire(Array(OffsetFetchResponsePartitions))


@struct
class OffsetFetchResponseGroup(Message):
    group_id: str = wire(String)
    topics: list[OffsetFetchResponseTopics] = wire(Array(OffsetFetchResponseTopics))
    error_code: int = wire(Int16, default=0)


@message("0-9", flexible="6+")
class OffsetFetchResponse(Message):
    throttle_time_ms: int = wire(Int32, "3+", ignorable=True, default=0)
    topics: list[OffsetFetchResponseTopic] = wire(Array(OffsetFetchResponseTopic), "0-7", factory=list)
    error_code: int = wire(Int16, "2-7", ignorable=True, default=0)
    groups: list[OffsetFetchResponseGroup] = wire(Array(OffsetFetchResponseGroup), "8+", factory=list)
