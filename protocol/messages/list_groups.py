"""ListGroups: the groups that a broker coordinates; filters by state (4) and type (5)."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Int16, Int32, String


@message("0-5", flexible="3+")
class ListGroupsRequest(Message):
    states_filter: list[str] = wire(Array(String), "4+", factory=list)
    types_filter: list[str] = wire(Array(String), "5+", factory=list)


@struct
class ListedGroup(Message):
    group_id: str = wire(String)
    protocol_type: str = wire(String)
    group_state: str = wire(String, "4+", ignorable=True, default="")
    group_type: str = wire(String, "5+", ignorable=True, default="")


@message("0-5", flexible="3+")
class ListGroupsResponse(Message):
    throttle_time_ms: int = wire(Int32, "1+", ignorable=True, default=0)
    error_code: int = wire(Int16)
    groups: list[ListedGroup] = wire(Array(ListedGroup))
