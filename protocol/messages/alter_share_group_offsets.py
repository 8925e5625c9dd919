"""AlterShareGroupOffsets: set start offsets of a share group."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Int16, Int32, Int64, String, Uuid


@struct
class AlterShareGroupOffsetsRequestPartition(Message):
    partition_index: int = wire(Int32)
    start_offset: int = wire(Int64)


@struct
class AlterShareGroupOffsetsRequestTopic(Message):
    topic_name: str = wire(String)
    partitions: list[AlterShareGroupOffsetsRequestPartition] = wire(Array(AlterShareGroupOffsetsRequestPartition))


@message("0-0", flexible="0+")
class AlterShareGroupOffsetsRequest(Message):
    group_id: str = wire(String)
    topics: list[AlterShareGroupOffsetsRequestTopic] = wire(Array(AlterShareGroupOffsetsRequestTopic))


@struct
class AlterShareGroupOffsetsResponsePartition(Message):
    partition_index: int = wire(Int32)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, nullable="0+", default=None)


@struct
class AlterShareGroupOffsetsResponseTopic(Message):
    topic_name: str = wire(String)
    topic_id: bytes = wire(Uuid)
    partitions: list[AlterShareGroupOffsetsResponsePartition] = wire(Array(AlterShareGroupOffsetsResponsePartition))


@message("0-0", flexible="0+")
class AlterShareGroupOffsetsResponse(Message):
    throttle_time_ms: int = wire(Int32)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, nullable="0+", default=None)
    responses: list[AlterShareGroupOffsetsResponseTopic] = wire(Array(AlterShareGroupOffsetsResponseTopic))
