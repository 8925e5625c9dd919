"""Request and response headers. In header version 2 the client id keeps its int16 length."""

from __future__ import annotations

from ottla.protocol.message import Message, message, wire
from ottla.protocol.primitives import Int16, Int32, String


@message("0-2", flexible="2+")
class RequestHeader(Message):
    request_api_key: int = wire(Int16)
    request_api_version: int = wire(Int16)
    correlation_id: int = wire(Int32)
    client_id: str | None = wire(String, "1+", nullable="1+", ignorable=True, classic=True, default="")


@message("0-1", flexible="1+")
class ResponseHeader(Message):
    correlation_id: int = wire(Int32)
