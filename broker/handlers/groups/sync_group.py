"""SyncGroup (14), versions 0-5.

Behavior: the leader sends the assignments, and every member gets its own. They are stored before any member is
answered. While the groups are being loaded the answer is REBALANCE_IN_PROGRESS: the member joins again, and JoinGroup
waits for the loading.

Version notes: 3 adds static members; 5 adds the protocol, which must be given and match the group's.
"""

from __future__ import annotations

from typing import Final

from ottla.broker.groups.classic.messages import SyncReply, SyncRequest
from ottla.broker.requests.request import Delayed, GroupsRequest, Respond
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_NAMED_PROTOCOL_VERSION: Final = 5


def sync_group(request: GroupsRequest) -> Delayed:
    """Return a member's assignment."""
    return _Syncing(request)


class _Syncing:
    """Responds when there is an assignment."""

    def __init__(self, request: GroupsRequest) -> None:
        self._request = request

    def then(self, respond: Respond) -> None:
        """Ask the group, and respond when it does."""
        body: SyncGroupRequest = self._request.body

        def answer(reply: SyncReply) -> None:
            respond(
                lambda: SyncGroupResponse(
                    error_code=reply.error,
                    protocol_type=reply.protocol_type,
                    protocol_name=reply.protocol_name,
                    assignment=reply.assignment,
                )
            )

        is_named = body.protocol_type is not None and body.protocol_name is not None
        if self._request.version >= _NAMED_PROTOCOL_VERSION and not is_named:
            answer(SyncReply(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
            return
        asked = SyncRequest(
            member_id=body.member_id,
            instance_id=body.group_instance_id,
            generation=body.generation_id,
            protocol_type=body.protocol_type,
            protocol_name=body.protocol_name,
            assignments={each.member_id: each.assignment for each in body.assignments},
        )
        try:
            self._request.services.groups.sync(body.group_id, asked, answer)
        except KafkaError as error:
            is_loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            answer(SyncReply(ErrorCode.REBALANCE_IN_PROGRESS if is_loading else error.code))
