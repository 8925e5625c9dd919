"""JoinGroup: enter a group and wait for the rebalance to gather its members."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Boolean, Bytes, Int16, Int32, String


@struct
class JoinGroupRequestProtocol(Message):
    name: str = wire(String)
    metadata: bytes = wire(Bytes)


@message("0-9", flexible="6+")
class JoinGroupRequest(Message):
    group_id: str = wire(String)
    session_timeout_ms: int = wire(Int32)
    rebalance_timeout_ms: int = wire(Int32, "1+", ignorable=True, default=-1)
    member_id: str = wire(String)
    group_instance_id: str | None = wire(String, "5+", nullable="5+", default=None)
    protocol_type: str = wire(String)
    protocols: list[JoinGroupRequestProtocol] = wire(Array(JoinGroupRequestProtocol))
    reason: str | None = wire(String, "8+", nullable="8+", ignorable=True, default=None)


@struct
class JoinGroupResponseMember(Message):
    member_id: str = wire(String)
    group_instance_id: str | None = wire(String, "5+", nullable="5+", ignorable=True, default=None)
    metadata: bytes = wire(Bytes)


@message("0-9", flexible="6+")
class JoinGroupResponse(Message):
    throttle_time_ms: int = wire(Int32, "2+", ignorable=True, default=0)
    error_code: int = wire(Int16)
    generation_id: int = wire(Int32, default=-1)
    protocol_type: str | None = wire(String, "7+", nullable="7+", ignorable=True, default=None)
    protocol_name: str | None = wire(String, nullable="7+")
    leader: str = wire(String)
    skip_assignment: bool = wire(Boolean, "9+", default=False)
    member_id: str = wire(String)
    members: list[JoinGroupResponseMember] = wire(Array(JoinGroupResponseMember))
