"""Heartbeat (12), versions 0-4.

Behavior: keeps a member's session alive. REBALANCE_IN_PROGRESS tells the member to join again. While the groups are
being loaded the answer is NONE, because sessions restart afterwards.

Version notes: version 3 adds static members.
"""

from __future__ import annotations

from ottla.broker.requests.request import GroupsRequest
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def heartbeat(request: GroupsRequest) -> HeartbeatResponse:
    """Note that a member is alive."""
    body: HeartbeatRequest = request.body
    try:
        code = request.services.groups.heartbeat(
            body.group_id, body.member_id, body.group_instance_id, body.generation_id
        )
    except KafkaError as error:
        code = ErrorCode.NONE if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error.code
    return HeartbeatResponse(error_code=code)
