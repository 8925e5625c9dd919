"""SaslAuthenticate: one step of a SASL exchange."""

from __future__ import annotations

from ottla.protocol.message import Message, message, wire
from ottla.protocol.primitives import Bytes, Int16, Int64, String


@message("0-2", flexible="2+")
class SaslAuthenticateRequest(Message):
    auth_bytes: bytes = wire(Bytes)


@message("0-2", flexible="2+")
class SaslAuthenticateResponse(Message):
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, nullable="0+")
    auth_bytes: bytes = wire(Bytes)
    session_lifetime_ms: int = wire(Int64, "1+", ignorable=True, default=0)
