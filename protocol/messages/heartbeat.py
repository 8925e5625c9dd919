"""Heartbeat: a member says that it is alive and learns of a rebalance."""

from __future__ import annotations

from ottla.protocol.message import Message, message, wire
from ottla.protocol.primitives import Int16, Int32, String


@message("0-4", flexible="4+")
class HeartbeatRequest(Message):
    group_id: str = wire(String)
    generation_id: int = wire(Int32)
    member_id: str = wire(String)
    group_instance_id: str | None = wire(String, "3+", nullable="3+", default=None)


@message("0-4", flexible="4+")
class HeartbeatResponse(Message):
    throttle_time_ms: int = wire(Int32, "1+", ignorable=True, default=0)
    error_code: int = wire(Int16)
