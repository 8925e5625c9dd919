"""DescribeGroups: state, protocol and members of classic groups."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Boolean, Bytes, Int16, Int32, String


@message("0-5", flexible="5+")
class DescribeGroupsRequest(Message):
    groups: list[str] = wire(Array(String))
    include_authorized_operations: bool = wire(Boolean, "3+", default=False)


@struct
class DescribedGroupMember(Message):
    member_id: str = wire(String)
    group_instance_id: str | None = wire(String, "4+", nullable="4+", ignorable=True, default=None)
    client_id: str = wire(String)
    client_host: str = wire(String)
    member_metadata: bytes = wire(Bytes)
    member_assignment: bytes = wire(Bytes)


@struct
class DescribedGroup(Message):
    error_code: int = wire(Int16)
    group_id: str = wire(String)
    group_state: str = wire(String)
    protocol_type: str = wire(String)
    protocol_data: str = wire(String)
    members: list[DescribedGroupMember] = wire(Array(DescribedGroupMember))
    authorized_operations: int = wire(Int32, "3+", default=-2147483648)


@message("0-5", flexible="5+")
class DescribeGroupsResponse(Message):
    throttle_time_ms: int = wire(Int32, "1+", ignorable=True, default=0)
    groups: list[DescribedGroup] = wire(Array(DescribedGroup))
