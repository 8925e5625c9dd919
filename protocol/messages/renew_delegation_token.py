"""RenewDelegationToken: move the expiry of a delegation token."""

from __future__ import annotations

from ottla.protocol.message import Message, message, wire
from ottla.protocol.primitives import Bytes, Int16, Int32, Int64


@message("0-2", flexible="2+")
class RenewDelegationTokenRequest(Message):
    hmac: bytes = wire(Bytes)
    renew_period_ms: int = wire(Int64)


@message("0-2", flexible="2+")
class RenewDelegationTokenResponse(Message):
    error_code: int = wire(Int16)
    expiry_timestamp_ms: int = wire(Int64)
    throttle_time_ms: int = wire(Int32)
