"""SyncGroup: the leader hands in the assignment, every member receives its own."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Bytes, Int16, Int32, String


@struct
class SyncGroupRequestAssignment(Message):
    member_id: str = wire(String)
    assignment: bytes = wire(Bytes)


@message("0-5", flexible="4+")
class SyncGroupRequest(Message):
    group_id: str = wire(String)
    generation_id: int = wire(Int32)
    member_id: str = wire(String)
    group_instance_id: str | None = wire(String, "3+", nullable="3+", default=None)
    protocol_type: str | None = wire(String, "5+", nullable="5+", ignorable=True, default=None)
    protocol_name: str | None = wire(String, "5+", nullable="5+", ignorable=True, default=None)
    assignments: list[SyncGroupRequestAssignment] = wire(Array(SyncGroupRequestAssignment))


@message("0-5", flexible="4+")
class SyncGroupResponse(Message):
    throttle_time_ms: int = wire(Int32, "1+", ignorable=True, default=0)
    error_code: int = wire(Int16)
    protocol_type: str | None = wire(String, "5+", nullable="5+", ignorable=True, default=None)
    protocol_name: str | None = wire(String, "5+", nullable="5+", ignorable=True, default=None)
    assignment: bytes = wire(Bytes)
