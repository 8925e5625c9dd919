"""DescribeGroups (15), versions 0-5.

Behavior: returns the state, protocol and members of classic groups. A group that this coordinator does not know is
"Dead", without an error and without members. The metadata and assignments of members are shown only while the group is
stable.

Version notes: version 3 adds the authorized operations on a group, if requested; version 4 adds static members.
"""

from __future__ import annotations

from ottla.broker.groups.classic.group import ClassicGroup
from ottla.broker.groups.classic.messages import GroupState
from ottla.broker.requests.access import GROUP, NOT_ASKED, check, operations
from ottla.broker.requests.request import GroupsRequest
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)


def describe_groups(request: GroupsRequest) -> DescribeGroupsResponse:
    """Describe groups."""
    body: DescribeGroupsRequest = request.body
    return DescribeGroupsResponse(groups=[_described(request, group_id) for group_id in dict.fromkeys(body.groups)])


def _described(request: GroupsRequest, group_id: str) -> DescribedGroup:
    try:
        check(request, GROUP, group_id)
        entry = request.services.groups.with_group(group_id, may_be_empty=True)
    except KafkaError as error:
        return _nothing(group_id, "", error.code)
    may_do = operations(request, GROUP, group_id) if request.body.include_authorized_operations else NOT_ASKED
    if entry is None or not isinstance(entry.group, ClassicGroup):
        return _nothing(group_id, GroupState.DEAD.value, ErrorCode.NONE, may_do)
    with entry.lock:
        group = entry.group
        return DescribedGroup(
            error_code=ErrorCode.NONE,
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=(group.protocol_name or "") if group.state is GroupState.STABLE else "",
            members=[DescribedGroupMember(**member) for member in group.describe()],
            authorized_operations=may_do,
        )


def _nothing(group_id: str, state: str, error: ErrorCode, may_do: int = NOT_ASKED) -> DescribedGroup:
    return DescribedGroup(
        error_code=error,
        group_id=group_id,
        group_state=state,
        protocol_type="",
        protocol_data="",
        members=[],
        authorized_operations=may_do,
    )
