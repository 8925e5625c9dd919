"""LeaveGroup (13), versions 0-5.

Behavior: removes members, so that the others rebalance without waiting for session timeouts. An instance id without a
member id removes the static member, whatever its current member id is.

Version notes: before version 3 one member leaves, and the response has one error code. From version 3 on, several may
leave, each with its own error code. 5 adds reasons.
"""

from __future__ import annotations

from typing import Final

from ottla.broker.groups.classic.messages import LeaveMember
from ottla.broker.requests.request import GroupsRequest
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

_SEVERAL_MEMBERS_VERSION: Final = 3


def leave_group(request: GroupsRequest) -> LeaveGroupResponse:
    """Remove members from a group."""
    body: LeaveGroupRequest = request.body
    is_batched = request.version >= _SEVERAL_MEMBERS_VERSION
    members = [LeaveMember(body.member_id)]
    if is_batched:
        members = [LeaveMember(each.member_id, each.group_instance_id, each.reason or "") for each in body.members]
    try:
        errors = request.services.groups.leave(body.group_id, members)
    except KafkaError as error:
        return LeaveGroupResponse(error_code=error.code)
    if not is_batched:
        return LeaveGroupResponse(error_code=errors[0])
    return LeaveGroupResponse(
        error_code=ErrorCode.NONE,
        members=[
            MemberResponse(member_id=member.member_id, group_instance_id=member.instance_id, error_code=error)
            for member, error in zip(members, errors, strict=True)
        ],
    )
