"""ConsumerGroupHeartbeat (68), versions 0-1.

Behavior: a member of a group of the new protocol sends its id, its subscription and its partitions. The response has
the heartbeat interval, the member's epoch and, if it has changed, its whole assignment. Epoch 0 joins, -1 leaves, and
-2 leaves for a while as a static member. Fields that have not changed since the last heartbeat may be left out. The
response waits until the changes are committed. Errors: UNKNOWN_MEMBER_ID and FENCED_MEMBER_EPOCH, after which a member
gives up its partitions and joins again; UNRELEASED_INSTANCE_ID; FENCED_INSTANCE_ID; GROUP_MAX_SIZE_REACHED;
UNSUPPORTED_ASSIGNOR; INVALID_REGULAR_EXPRESSION; INCONSISTENT_GROUP_PROTOCOL if a classic group of that name has
members.

Version notes: version 1 adds regular expressions, and members must generate their own ids.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ottla.broker.groups.consumer.assignors import TopicIdPartition
from ottla.broker.groups.consumer.groups import assignor_names
from ottla.broker.groups.consumer.messages import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    UNCHANGED,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
)
from ottla.broker.groups.consumer.records import by_topic
from ottla.broker.requests.access import TOPIC, check, standing_right
from ottla.broker.requests.coordinator_wait import when_ready
from ottla.broker.requests.outcome import Outcome
from ottla.broker.requests.request import Delayed, GroupsRequest, Respond
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.message import Message
from ottla.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ResponseTopicPartitions,
)

_OWN_MEMBER_ID_VERSION: Final = 1


def consumer_group_heartbeat(request: GroupsRequest) -> Message | Delayed:
    """Process a member's heartbeat."""
    return when_ready(request, [request.body.group_id], _Heartbeat)


class _Heartbeat:
    """Responds when the group does."""

    def __init__(self, request: GroupsRequest) -> None:
        self._request = request

    def then(self, respond: Respond) -> None:
        """Pass the heartbeat to the group, and respond when its changes are stored."""
        request = self._request
        body: ConsumerGroupHeartbeatRequest = request.body

        def answer(reply: ConsumerHeartbeatReply) -> None:
            respond(lambda: _response(reply))

        try:
            problem = next(_problems(request.version, body), None)
            if problem is not None:
                raise KafkaError(ErrorCode.INVALID_REQUEST, problem)
            for topic in body.subscribed_topic_names or ():
                check(request, TOPIC, topic)
            known = assignor_names(request.services.config())
            if body.server_assignor is not None and body.server_assignor not in known:
                raise KafkaError(ErrorCode.UNSUPPORTED_ASSIGNOR, f"supported: {', '.join(known)}")
            request.services.consumer_groups.heartbeat(body.group_id, _heartbeat(request, body), answer)
        except KafkaError as error:
            answer(ConsumerHeartbeatReply(error.code, error.detail))


def _problems(version: int, body: ConsumerGroupHeartbeatRequest) -> Iterator[str]:
    """Yield what is invalid in a request."""
    if not body.group_id:
        yield "the group id is empty"
    if body.instance_id == "":
        yield "the instance id is empty"
    if body.rack_id == "":
        yield "the rack is empty"
    if body.member_epoch < LEAVE_STATIC_EPOCH:
        yield f"{body.member_epoch} is not a member epoch"
    if not body.member_id and (version >= _OWN_MEMBER_ID_VERSION or body.member_epoch != JOIN_EPOCH):
        yield "the member id is empty"
    if body.member_epoch == LEAVE_STATIC_EPOCH and body.instance_id is None:
        yield "a member without an instance id cannot leave for a while"
    if body.member_epoch != JOIN_EPOCH:
        return
    if body.rebalance_timeout_ms == UNCHANGED:
        yield "a joining member must send a rebalance timeout"
    if body.topic_partitions is None or body.topic_partitions:
        yield "a joining member must not own partitions"
    if body.subscribed_topic_names is None and body.subscribed_topic_regex is None:
        yield "a joining member must send a subscription"


def _heartbeat(request: GroupsRequest, body: ConsumerGroupHeartbeatRequest) -> ConsumerHeartbeat:
    names, owned = body.subscribed_topic_names, body.topic_partitions
    return ConsumerHeartbeat(
        member_id=body.member_id,
        member_epoch=body.member_epoch,
        client_id=request.client_id,
        client_host=f"/{request.session.client_host}",
        instance_id=body.instance_id,
        rack_id=body.rack_id,
        rebalance_timeout_ms=body.rebalance_timeout_ms,
        topic_names=None if names is None else tuple(names),
        topic_regex=body.subscribed_topic_regex,
        server_assignor=body.server_assignor,
        owned=None
        if owned is None
        else frozenset(TopicIdPartition(topic.topic_id, index) for topic in owned for index in topic.partitions),
        describing=standing_right(request, TOPIC),
    )


def _response(reply: ConsumerHeartbeatReply) -> ConsumerGroupHeartbeatResponse:
    assignment = None
    if reply.assignment is not None:
        rows = by_topic(reply.assignment).items()
        assignment = Assignment(
            topic_partitions=[ResponseTopicPartitions(topic_id=each, partitions=indexes) for each, indexes in rows]
        )
    has_failed = reply.error is not ErrorCode.NONE
    return ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=reply.error,
        error_message=Outcome.of(reply.error, reply.detail).message if has_failed else None,
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
        assignment=assignment,
    )
