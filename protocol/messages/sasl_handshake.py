"""SaslHandshake: choose a SASL mechanism."""

from __future__ import annotations

from ottla.protocol.message import Message, message, wire
from ottla.protocol.primitives import Array, Int16, String


@message("0-1")
class SaslHandshakeRequest(Message):
    mechanism: str = wire(String)


@message("0-1")
class SaslHandshakeResponse(Message):
    error_code: int = wire(Int16)
    mechanisms: list[str] = wire(Array(String))
