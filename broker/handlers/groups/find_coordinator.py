"""FindCoordinator (10), versions 0-6.

Behavior: the coordinator of a group is the leader of the group's partition of `__consumer_offsets`, that of a
transactional id the leader of its partition of `__transaction_state`. Its address is the one of the listener on which
the request came in. The topic is created on the first request for a key. So that the client need not retry, the
response waits a moment for a leader (some seconds if the topic is new) and, if this broker is the leader, until it has
loaded the partition. After that, a missing coordinator is COORDINATOR_NOT_AVAILABLE. Share groups, from version 6 on,
are COORDINATOR_NOT_AVAILABLE; other key types are INVALID_REQUEST.

Version notes: version 0 asks for groups only; version 4 asks for several keys.

Not implemented: share groups.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Final, NamedTuple

from ottla.broker.cluster.metadata import MetadataSnapshot
from ottla.broker.coordination.placement import CONSUMER_OFFSETS, TRANSACTION_STATE, partition_for
from ottla.broker.requests.access import GROUP, TRANSACTIONAL_ID, denied
from ottla.broker.requests.metadata_wait import answer_when_met
from ottla.broker.requests.outcome import DONE, Outcome
from ottla.broker.requests.request import Delayed, GroupsRequest
from ottla.broker.requests.topic_creation import create_missing_topic
from ottla.protocol.acls import ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Message
from ottla.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

_GROUP, _TRANSACTION, _SHARE = 0, 1, 2


class _Kind(NamedTuple):
    """What keys of one type stand for."""

    resource: ResourceType
    # The internal topic whose leaders coordinate.
    topic: str
    refused: ErrorCode


_KINDS: Final = {
    _GROUP: _Kind(GROUP, CONSUMER_OFFSETS, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    _TRANSACTION: _Kind(TRANSACTIONAL_ID, TRANSACTION_STATE, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
}
_SEVERAL_KEYS_VERSION: Final = 4
_SHARES_VERSION: Final = 6
_NOBODY: Final = -1
# Later requests on the same connection wait behind this one, so only a new topic is worth seconds.
_NEW_TOPIC_WAIT_MS: Final = 5_000
_ELECTION_WAIT_MS: Final = 500


class _Found(NamedTuple):
    """The coordinator of one key, or why there is none."""

    outcome: Outcome
    node_id: int = _NOBODY
    host: str = ""
    port: int = _NOBODY


def find_coordinator(request: GroupsRequest) -> Message | Delayed:
    """Find the coordinators of groups or transactional ids."""
    body: FindCoordinatorRequest = request.body
    keys = [body.key] if request.version < _SEVERAL_KEYS_VERSION else list(dict.fromkeys(body.coordinator_keys))
    kind = _KINDS.get(body.key_type)
    if kind is None:
        outcome = _no_coordinator(request.version, body.key_type)
        return _response(request, keys, [_Found(outcome)] * len(keys))
    refused = denied(request, kind.resource, keys)
    known = kind

    def is_known(snapshot: MetadataSnapshot) -> bool:
        return all(_is_ready(request, snapshot, known, key) for key in keys if key not in refused)

    def answer(late: Set[str]) -> FindCoordinatorResponse:
        snapshot = request.services.metadata.snapshot
        not_allowed = _Found(Outcome.of(known.refused))
        found = [not_allowed if key in refused else _found(request, snapshot, known, key) for key in keys]
        return _response(request, keys, found)

    if is_known(request.services.metadata.snapshot):
        return answer(set())
    return answer_when_met(request, _wait_ms(request, known.topic), {known.topic: is_known}, answer)


def _wait_ms(request: GroupsRequest, topic: str) -> int:
    """Return how long to wait for a coordinator. Creates the topic if it is missing."""
    services = request.services
    if services.metadata.snapshot.topic(topic) is not None:
        return _ELECTION_WAIT_MS
    is_created = create_missing_topic(request, topic) is ErrorCode.LEADER_NOT_AVAILABLE
    return _NEW_TOPIC_WAIT_MS if is_created else 0


def _is_ready(request: GroupsRequest, snapshot: MetadataSnapshot, kind: _Kind, key: str) -> bool:
    found = _found(request, snapshot, kind, key)
    services = request.services
    if found.outcome is not DONE:
        return False
    if found.node_id != services.cluster.broker_id:
        return True
    return (services.groups if kind.topic == CONSUMER_OFFSETS else services.transactions).is_ready(key)


def _found(request: GroupsRequest, snapshot: MetadataSnapshot, kind: _Kind, key: str) -> _Found:
    topic = snapshot.topic(kind.topic)
    if topic is not None:
        partition = topic.partitions.get(partition_for(key, len(topic.partitions)))
        leader = _NOBODY if partition is None else partition.leader
        endpoint = snapshot.endpoint(leader, request.session.listener)
        if endpoint is not None:
            return _Found(DONE, leader, endpoint.host, endpoint.port)
    return _Found(Outcome.of(ErrorCode.COORDINATOR_NOT_AVAILABLE))


def _no_coordinator(version: int, key_type: int) -> Outcome:
    if key_type == _SHARE and version >= _SHARES_VERSION:
        return Outcome.of(ErrorCode.COORDINATOR_NOT_AVAILABLE, "This broker does not support share groups.")
    return Outcome.of(ErrorCode.INVALID_REQUEST, f"Unknown key type {key_type}.")


def _response(request: GroupsRequest, keys: Sequence[str], found: Sequence[_Found]) -> FindCoordinatorResponse:
    if request.version < _SEVERAL_KEYS_VERSION:
        (only,) = found
        return FindCoordinatorResponse(
            error_code=only.outcome.code,
            error_message=only.outcome.message,
            node_id=only.node_id,
            host=only.host,
            port=only.port,
        )
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(
                key=key,
                node_id=each.node_id,
                host=each.host,
                port=each.port,
                error_code=each.outcome.code,
                error_message=each.outcome.message,
            )
            for key, each in zip(keys, found, strict=True)
        ]
    )
