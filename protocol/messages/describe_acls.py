"""DescribeAcls: list the ACLs that a filter matches. Version 1 adds prefixed patterns."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Int8, Int16, Int32, String


@message("0-3", flexible="2+")
class DescribeAclsRequest(Message):
    resource_type_filter: int = wire(Int8)
    resource_name_filter: str | None = wire(String, nullable="0+")
    pattern_type_filter: int = wire(Int8, "1+", default=3)
    principal_filter: str | None = wire(String, nullable="0+")
    host_filter: str | None = wire(String, nullable="0+")
    operation: int = wire(Int8)
    permission_type: int = wire(Int8)


@struct
class AclDescription(Message):
    principal: str = wire(String)
    host: str = wire(String)
    operation: int = wire(Int8)
    permission_type: int = wire(Int8)


@struct
class DescribeAclsResource(Message):
    resource_type: int = wire(Int8)
    resource_name: str = wire(String)
    pattern_type: int = wire(Int8, "1+", default=3)
    acls: list[AclDescription] = wire(Array(AclDescription))


@message("0-3", flexible="2+")
class DescribeAclsResponse(Message):
    throttle_time_ms: int = wire(Int32)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, nullable="0+")
    resources: list[DescribeAclsResource] = wire(Array(DescribeAclsResource))
