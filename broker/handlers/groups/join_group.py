"""JoinGroup (11), versions 0-9.

Behavior: a member joins the next generation of its group. The response comes when the generation begins: when all
members have joined, or the rebalance timeout is over. The leader of the generation gets the metadata of all members. A
new member first gets an id, with MEMBER_ID_REQUIRED. Error responses have generation -1 and the member id of the
request.

Version notes: version 0 has no rebalance timeout and uses the session timeout. Before version 4 a new member is
accepted at once. 5 adds static members. 7 sends null for an unknown protocol, earlier versions "". 8 adds the reason. 9
tells a leader that it need not assign.
"""

from __future__ import annotations

from typing import Final

from ottla.broker.groups.classic.messages import JoinReply, JoinRequest
from ottla.broker.requests.coordinator_wait import when_ready
from ottla.broker.requests.request import Delayed, GroupsRequest, Respond
from ottla.protocol.errors import KafkaError
from ottla.protocol.message import Message
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember

_REBALANCE_TIMEOUT_VERSION: Final = 1
_KNOWN_MEMBER_VERSION: Final = 4
_NULL_PROTOCOL_VERSION: Final = 7
_SKIP_ASSIGNMENT_VERSION: Final = 9
# The maximum length of the reason that a client gives; longer texts are cut.
_REASON_LENGTH_MAX: Final = 255


def join_group(request: GroupsRequest) -> Message | Delayed:
    """Let a member join."""
    return when_ready(request, [request.body.group_id], _Joining)


class _Joining:
    """Responds when the group does."""

    def __init__(self, request: GroupsRequest) -> None:
        self._request = request

    def then(self, respond: Respond) -> None:
        """Join, and respond when the generation begins."""
        request = self._request
        body: JoinGroupRequest = request.body

        def answer(reply: JoinReply) -> None:
            respond(lambda: _response(request.version, reply))

        try:
            request.services.groups.join(body.group_id, _join(request, body), answer)
        except KafkaError as error:
            answer(JoinReply(error.code, body.member_id))


def _join(request: GroupsRequest, body: JoinGroupRequest) -> JoinRequest:
    has_timeout = request.version >= _REBALANCE_TIMEOUT_VERSION
    return JoinRequest(
        member_id=body.member_id,
        instance_id=body.group_instance_id,
        client_id=request.client_id,
        client_host=f"/{request.session.client_host}",
        protocol_type=body.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in body.protocols),
        session_timeout_ms=body.session_timeout_ms,
        rebalance_timeout_ms=body.rebalance_timeout_ms if has_timeout else body.session_timeout_ms,
        requires_known_member_id=request.version >= _KNOWN_MEMBER_VERSION,
        supports_skip_assignment=request.version >= _SKIP_ASSIGNMENT_VERSION,
        reason=(body.reason or "")[:_REASON_LENGTH_MAX],
    )


def _response(version: int, reply: JoinReply) -> JoinGroupResponse:
    protocol_name = reply.protocol_name
    if protocol_name is None and version < _NULL_PROTOCOL_VERSION:
        protocol_name = ""
    return JoinGroupResponse(
        error_code=reply.error,
        generation_id=reply.generation,
        protocol_type=reply.protocol_type,
        protocol_name=protocol_name,
        leader=reply.leader_id,
        skip_assignment=reply.skip_assignment and version >= _SKIP_ASSIGNMENT_VERSION,
        member_id=reply.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata
            )
            for member in reply.members
        ],
    )
