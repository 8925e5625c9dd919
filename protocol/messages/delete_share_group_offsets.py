"""DeleteShareGroupOffsets: delete start offsets of a share group."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Int16, Int32, String, Uuid


@struct
class DeleteShareGroupOffsetsRequestTopic(Message):
    topic_name: str = wire(String)


@message("0-0", flexible="0+")
class DeleteShareGroupOffsetsRequest(Message):
    group_id: str = wire(String)
    topics: list[DeleteShareGroupOffsetsRequestTopic] = wire(Array(DeleteShareGroupOffsetsRequestTopic))


@struct
class DeleteShareGroupOffsetsResponseTopic(Message):
    topic_name: str = wire(String)
    topic_id: bytes = wire(Uuid)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, nullable="0+", default=None)


@message("0-0", flexible="0+")
class DeleteShareGroupOffsetsResponse(Message):
    throttle_time_ms: int = wire(Int32)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, nullable="0+", default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = wire(Array(DeleteShareGroupOffsetsResponseTopic))
