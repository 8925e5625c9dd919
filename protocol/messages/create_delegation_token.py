"""CreateDelegationToken: obtain a delegation token."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Bytes, Int16, Int32, Int64, String


@struct
class CreatableRenewers(Message):
    principal_type: str = wire(String)
    principal_name: str = wire(String)


@message("0-3", flexible="2+")
class CreateDelegationTokenRequest(Message):
    owner_principal_type: str | None = wire(String, "3+", nullable="3+", default="")
    owner_principal_name: str | None = wire(String, "3+", nullable="3+", default="")
    renewers: list[CreatableRenewers] = wire(Array(CreatableRenewers))
    max_lifetime_ms: int = wire(Int64)


@message("0-3", flexible="2+")
class CreateDelegationTokenResponse(Message):
    error_code: int = wire(Int16)
    principal_type: str = wire(String)
    principal_name: str = wire(String)
    token_requester_principal_type: str = wire(String, "3+", default="")
    token_requester_principal_name: str = wire(String, "3+", default="")
    issue_timestamp_ms: int = wire(Int64)
    expiry_timestamp_ms: int = wire(Int64)
    max_timestamp_ms: int = wire(Int64)
    token_id: str = wire(String)
    hmac: bytes = wire(Bytes)
    throttle_time_ms: int = wire(Int32)
