"""LeaveGroup: a member, or from version 3 several, leave a group."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Int16, Int32, String


@struct
class MemberIdentity(Message):
    member_id: str = wire(String)
    group_instance_id: str | None = wire(String, nullable="3+", default=None)
    reason: str | None = wire(String, "5+", nullable="5+", ignorable=True, default=None)


@message("0-5", flexible="4+")
class LeaveGroupRequest(Message):
    group_id: str = wire(String)
    member_id: str = wire(String, "0-2", default="")
    members: list[MemberIdentity] = wire(Array(MemberIdentity), "3+", factory=list)


@struct
class MemberResponse(Message):
    member_id: str = wire(String)
    group_instance_id: str | None = wire(String, nullable="3+")
    error_code: int = wire(Int16)


@message("0-5", flexible="4+")
class LeaveGroupResponse(Message):
    throttle_time_ms: int = wire(Int32, "1+", ignorable=True, default=0)
    error_code: int = wire(Int16)
    members: list[MemberResponse] = wire(Array(MemberResponse), "3+", factory=list)
