"""DeleteGroups: delete groups and their positions."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Int16, Int32, String


@message("0-2", flexible="2+")
class DeleteGroupsRequest(Message):
    groups_names: list[str] = wire(Array(String))


@struct
class DeletableGroupResult(Message):
    group_id: str = wire(String)
    error_code: int = wire(Int16)


@message("0-2", flexible="2+")
class DeleteGroupsResponse(Message):
    throttle_time_ms: int = wire(Int32)
    results: list[DeletableGroupResult] = wire(Array(DeletableGroupResult))
