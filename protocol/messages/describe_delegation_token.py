"""DescribeDelegationToken: list delegation tokens by owner."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Bytes, Int16, Int32, Int64, String


@struct
class DescribeDelegationTokenOwner(Message):
    principal_type: str = wire(String)
    principal_name: str = wire(String)


@message("0-3", flexible="2+")
class DescribeDelegationTokenRequest(Message):
    owners: list[DescribeDelegationTokenOwner] | None = wire(Array(DescribeDelegationTokenOwner), nullable="0+")


@struct
class DescribedDelegationTokenRenewer(Message):
    principal_type: str = wire(String)
    principal_name: str = wire(String)


@struct
class DescribedDelegationToken(Message):
    principal_type: str = wire(String)
    principal_name: str = wire(String)
    token_requester_principal_type: str = wire(String, "3+", default="")
    token_requester_principal_name: str = wire(String, "3+", default="")
    issue_timestamp: int = wire(Int64)
    expiry_timestamp: int = wire(Int64)
    max_timestamp: int = wire(Int64)
    token_id: str = wire(String)
    hmac: bytes = wire(Bytes)
    renewers: list[DescribedDelegationTokenRenewer] = wire(Array(DescribedDelegationTokenRenewer))


@message("0-3", flexible="2+")
class DescribeDelegationTokenResponse(Message):
    error_code: int = wire(Int16)
    tokens: list[DescribedDelegationToken] = wire(Array(DescribedDelegationToken))
    throttle_time_ms: int = wire(Int32)
