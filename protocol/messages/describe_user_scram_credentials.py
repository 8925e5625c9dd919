"""DescribeUserScramCredentials: which SCRAM mechanisms users have."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Int8, Int16, Int32, String


@struct
class UserName(Message):
    name: str = wire(String)


@message("0", flexible="0+")
class DescribeUserScramCredentialsRequest(Message):
    users: list[UserName] | None = wire(Array(UserName), nullable="0+")


@struct
class CredentialInfo(Message):
    mechanism: int = wire(Int8)
    iterations: int = wire(Int32)


@struct
class DescribeUserScramCredentialsResult(Message):
    user: str = wire(String)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, nullable="0+")
    credential_infos: list[CredentialInfo] = wire(Array(CredentialInfo))


@message("0", flexible="0+")
class DescribeUserScramCredentialsResponse(Message):
    throttle_time_ms: int = wire(Int32)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = wire(Array(DescribeUserScramCredentialsResult))
