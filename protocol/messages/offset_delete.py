"""OffsetDelete: delete positions of a group."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Int16, Int32, String


@struct
class OffsetDeleteRequestPartition(Message):
    partition_index: int = wire(Int32)


@struct
class OffsetDeleteRequestTopic(Message):
    name: str = wire(String)
    partitions: list[OffsetDeleteRequestPartition] = wire(Array(OffsetDeleteRequestPartition))


@message("0")
class OffsetDeleteRequest(Message):
    group_id: str = wire(String)
    topics: list[OffsetDeleteRequestTopic] = wire(Array(OffsetDeleteRequestTopic))


@struct
class OffsetDeleteResponsePartition(Message):
    partition_index: int = wire(Int32)
    error_code: int = wire(Int16)


@struct
class OffsetDeleteResponseTopic(Message):
    name: str = wire(String)
    partitions: list[OffsetDeleteResponsePartition] = wire(Array(OffsetDeleteResponsePartition))


@message("0")
class OffsetDeleteResponse(Message):
    error_code: int = wire(Int16)
    throttle_time_ms: int = wire(Int32)
    topics: list[OffsetDeleteResponseTopic] = wire(Array(OffsetDeleteResponseTopic))
