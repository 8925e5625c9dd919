"""CreateAcls: add ACLs."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Int8, Int16, Int32, String


@struct
class AclCreation(Message):
    resource_type: int = wire(Int8)
    resource_name: str = wire(String)
    resource_pattern_type: int = wire(Int8, "1+", default=3)
    principal: str = wire(String)
    host: str = wire(String)
    operation: int = wire(Int8)
    permission_type: int = wire(Int8)


@message("0-3", flexible="2+")
class CreateAclsRequest(Message):
    creations: list[AclCreation] = wire(Array(AclCreation))


@struct
class AclCreationResult(Message):
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, nullable="0+")


@message("0-3", flexible="2+")
class CreateAclsResponse(Message):
    throttle_time_ms: int = wire(Int32)
    results: list[AclCreationResult] = wire(Array(AclCreationResult))
