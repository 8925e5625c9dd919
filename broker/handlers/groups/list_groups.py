"""ListGroups (16), versions 0-5.

Behavior: returns the groups that this broker coordinates; clients ask all brokers. While some groups are being loaded,
the error is COORDINATOR_LOAD_IN_PROGRESS, and the known groups are listed. Groups that the client may not describe are
left out.

Version notes: version 4 filters by state, version 5 by type. Filters ignore case; an empty filter matches all groups.
"""

from __future__ import annotations

from ottla.broker.requests.access import GROUP, allows
from ottla.broker.requests.request import GroupsRequest
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


def list_groups(request: GroupsRequest) -> ListGroupsResponse:
    """List groups."""
    body: ListGroupsRequest = request.body
    states = {state.lower() for state in body.states_filter}
    types = {type_name.lower() for type_name in body.types_filter}
    groups = request.services.groups
    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if groups.is_loading else ErrorCode.NONE
    listed = []
    for entry in groups:
        state: str = entry.group.state.value
        if (states and state.lower() not in states) or (types and entry.type_name.lower() not in types):
            continue
        if not allows(request, GROUP, entry.group_id, log_if_denied=False):
            continue
        listed.append(
            ListedGroup(
                group_id=entry.group_id,
                protocol_type=entry.group.protocol_type or "",
                group_state=state,
                group_type=entry.type_name,
            )
        )
    return ListGroupsResponse(error_code=code, groups=listed)
