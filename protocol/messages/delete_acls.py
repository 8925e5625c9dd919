"""DeleteAcls: remove the ACLs that filters match."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Int8, Int16, Int32, String


@struct
class DeleteAclsFilter(Message):
    resource_type_filter: int = wire(Int8)
    resource_name_filter: str | None = wire(String, nullable="0+")
    pattern_type_filter: int = wire(Int8, "1+", default=3)
    principal_filter: str | None = wire(String, nullable="0+")
    host_filter: str | None = wire(String, nullable="0+")
    operation: int = wire(Int8)
    permission_type: int = wire(Int8)


@message("0-3", flexible="2+")
class DeleteAclsRequest(Message):
    filters: list[DeleteAclsFilter] = wire(Array(DeleteAclsFilter))


@struct
class DeleteAclsMatchingAcl(Message):
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, nullable="0+")
    resource_type: int = wire(Int8)
    resource_name: str = wire(String)
    pattern_type: int = wire(Int8, "1+", default=3)
    principal: str = wire(String)
    host: str = wire(String)
    operation: int = wire(Int8)
    permission_type: int = wire(Int8)


@struct
class DeleteAclsFilterResult(Message):
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, nullable="0+")
    matching_acls: list[DeleteAclsMatchingAcl] = wire(Array(DeleteAclsMatchingAcl))


@message("0-3", flexible="2+")
class DeleteAclsResponse(Message):
    throttle_time_ms: int = wire(Int32)
    filter_results: list[DeleteAclsFilterResult] = wire(Array(DeleteAclsFilterResult))
