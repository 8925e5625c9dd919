"""AlterUserScramCredentials: set or delete SCRAM credentials."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Bytes, Int8, Int16, Int32, String


@struct
class ScramCredentialDeletion(Message):
    name: str = wire(String)
    mechanism: int = wire(Int8)


@struct
class ScramCredentialUpsertion(Message):
    name: str = wire(String)
    mechanism: int = wire(Int8)
    iterations: int = wire(Int32)
    salt: bytes = wire(Bytes)
    salted_password: bytes = wire(Bytes)


@message("0", flexible="0+")
class AlterUserScramCredentialsRequest(Message):
    deletions: list[ScramCredentialDeletion] = wire(Array(ScramCredentialDeletion))
    upsertions: list[ScramCredentialUpsertion] = wire(Array(ScramCredentialUpsertion))


@struct
class AlterUserScramCredentialsResult(Message):
    user: str = wire(String)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, nullable="0+")


@message("0", flexible="0+")
class AlterUserScramCredentialsResponse(Message):
    throttle_time_ms: int = wire(Int32)
    results: list[AlterUserScramCredentialsResult] = wire(Array(AlterUserScramCredentialsResult))
