"""DeleteGroups (42), versions 0-2.

Behavior: deletes groups without members, with their offsets. A group with members is NON_EMPTY_GROUP; a group that does
not exist is GROUP_ID_NOT_FOUND.
"""

from __future__ import annotations

from ottla.broker.requests.access import GROUP, check
from ottla.broker.requests.audited import note_change
from ottla.broker.requests.request import GroupsRequest
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


def delete_groups(request: GroupsRequest) -> DeleteGroupsResponse:
    """Delete groups."""
    body: DeleteGroupsRequest = request.body
    return DeleteGroupsResponse(
        throttle_time_ms=0,
        results=[
            DeletableGroupResult(group_id=group_id, error_code=_deleted(request, group_id))
            for group_id in dict.fromkeys(body.groups_names)
        ],
    )


def _deleted(request: GroupsRequest, group_id: str) -> ErrorCode:
    try:
        check(request, GROUP, group_id)
        code = request.services.group_offsets.delete_group(group_id)
    except KafkaError as error:
        return error.code
    if code is ErrorCode.NONE:
        note_change(request, "group_deleted", f"Group:{group_id}")
    return code
