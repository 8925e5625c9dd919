"""DeleteTopics: delete topics by name, or from version 6 by id."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import UUID_ZERO, Array, Int16, Int32, String, Uuid


@struct
class DeleteTopicState(Message):
    name: str | None = wire(String, nullable="6+", default=None)
    topic_id: bytes = wire(Uuid)


@message("0-6", flexible="4+")
class DeleteTopicsRequest(Message):
    topics: list[DeleteTopicState] = wire(Array(DeleteTopicState), "6+", factory=list)
    topic_names: list[str] = wire(Array(String), "0-5", ignorable=True, factory=list)
    timeout_ms: int = wire(Int32)


@struct
class DeletableTopicResult(Message):
    name: str | None = wire(String, nullable="6+")
    topic_id: bytes = wire(Uuid, "6+", ignorable=True, default=UUID_ZERO)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, "5+", nullable="5+", ignorable=True, default=None)


@message("0-6", flexible="4+")
class DeleteTopicsResponse(Message):
    throttle_time_ms: int = wire(Int32, "1+", ignorable=True, default=0)
    responses: list[DeletableTopicResult] = wire(Array(DeletableTopicResult))
