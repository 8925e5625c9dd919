"""DescribeGroups (15), versions 0-5.

Behavior: state, protocol and members of classic groups. A group that this coordinator does not know is "Dead", without
an error and without members. What members say and what they are assigned is told only while the group is stable.

Version notes: 4 adds static members. Who may do what with a group (3) is not known here.
"""

from __future__ import annotations

from ottla.broker.groups.group import Group
from ottla.broker.groups.messages import GroupState
from ottla.broker.handlers.request import Request
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)


def describe_groups(request: Request) -> DescribeGroupsResponse:
    """Describe groups."""
    body: DescribeGroupsRequest = request.body
    return DescribeGroupsResponse(groups=[_described(request, group_id) for group_id in body.groups])


def _described(request: Request, group_id: str) -> DescribedGroup:
    try:
        entry = request.services.groups.with_group(group_id, may_be_empty=True)
    except KafkaError as error:
        return _nothing(group_id, "", error.code)
    if entry is None or not isinstance(entry.group, Group):
        return _nothing(group_id, GroupState.DEAD.value, ErrorCode.NONE)
    with entry.lock:
        group = entry.group
        return DescribedGroup(
            error_code=ErrorCode.NONE,
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=(group.protocol_name or "") if group.state is GroupState.STABLE else "",
            members=[DescribedGroupMember(**member) for member in group.describe()],
        )


def _nothing(group_id: str, state: str, error: ErrorCode) -> DescribedGroup:
    return DescribedGroup(
        error_code=error, group_id=group_id, group_state=state, protocol_type="", protocol_data="", members=[]
    )
