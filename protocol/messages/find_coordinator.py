"""FindCoordinator: which broker looks after a group or a transactional id; several keys from version 4."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Int8, Int16, Int32, String


@message("0-6", flexible="3+")
class FindCoordinatorRequest(Message):
    key: str = wire(String, "0-3", default="")
    key_type: int = wire(Int8, "1+", default=0)
    coordinator_keys: list[str] = wire(Array(String), "4+", factory=list)


@struct
class Coordinator(Message):
    key: str = wire(String)
    node_id: int = wire(Int32)
    host: str = wire(String)
    port: int = wire(Int32)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, nullable="4+")


@message("0-6", flexible="3+")
class FindCoordinatorResponse(Message):
    throttle_time_ms: int = wire(Int32, "1+", ignorable=True, default=0)
    error_code: int = wire(Int16, "0-3", default=0)
    error_message: str | None = wire(String, "1-3", nullable="1-3", ignorable=True, default="")
    node_id: int = wire(Int32, "0-3", default=0)
    host: str = wire(String, "0-3", default="")
    port: int = wire(Int32, "0-3", default=0)
    coordinators: list[Coordinator] = wire(Array(Coordinator), "4+", factory=list)
