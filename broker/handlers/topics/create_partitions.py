"""CreatePartitions (37), versions 0-3. For the controller; others answer NOT_CONTROLLER for each topic.

Behavior: adds partitions to topics. The request gives the new total; if it is not larger: INVALID_PARTITIONS. It may
give the replicas of all new partitions; another number of them is INVALID_REPLICA_ASSIGNMENT. Other errors:
UNKNOWN_TOPIC_OR_PARTITION, also for a topic that is being deleted; REASSIGNMENT_IN_PROGRESS; INVALID_REQUEST for a
topic that is named twice. The response waits until the new partitions have leaders. Topics that are late after
`timeout_ms` are REQUEST_TIMED_OUT; if it is 0 or less, this is true for all of them. `validate_only` only checks.

Version notes: version 2 is flexible. From version 3 on, a topic above the quota is THROTTLING_QUOTA_EXCEEDED.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set

from ottla.broker.requests.access import TOPIC, denied
from ottla.broker.requests.audited import note_change
from ottla.broker.requests.metadata_wait import Condition, answer_when_met, has_leaders
from ottla.broker.requests.outcome import DONE, Outcome
from ottla.broker.requests.request import Delayed, TopicsRequest
from ottla.broker.requests.throttling import has_mutation_quota, take_mutations
from ottla.broker.requests.topic_creation import TOO_MANY_PARTITIONS, fits_in_request
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.message import Message
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

_STRICT_QUOTA_VERSION = 3
_REFUSED = Outcome.of(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
_LATE = Outcome.of(ErrorCode.REQUEST_TIMED_OUT, "The partitions are created, but not all of them have leaders yet.")


def create_partitions(request: TopicsRequest) -> Message | Delayed:
    """Add partitions to topics, and wait for their leaders."""
    body: CreatePartitionsRequest = request.body
    counts = Counter(topic.name for topic in body.topics)
    conditions: dict[str, Condition] = {}
    has_room = fits_in_request(request, (_added_count(request, topic) for topic in body.topics))
    hidden = denied(request, TOPIC, counts)
    results = [
        (
            topic.name,
            _REFUSED
            if topic.name in hidden
            else _enlarge(request, topic, conditions, is_repeated=counts[topic.name] > 1, has_room=has_room),
        )
        for topic in body.topics
    ]

    def answer(late: Set[str]) -> CreatePartitionsResponse:
        return CreatePartitionsResponse(
            throttle_time_ms=0,
            results=[_result(name, _LATE if name in late else outcome) for name, outcome in results],
        )

    return answer_when_met(request, body.timeout_ms, conditions, answer)


def _added_count(request: TopicsRequest, topic: CreatePartitionsTopic) -> int:
    known = request.services.metadata.snapshot.topic(topic.name)
    return topic.count - (0 if known is None else len(known.partitions))


def _enlarge(
    request: TopicsRequest,
    topic: CreatePartitionsTopic,
    conditions: dict[str, Condition],
    *,
    is_repeated: bool,
    has_room: bool,
) -> Outcome:
    validate_only = request.body.validate_only
    given = None if topic.assignments is None else [each.broker_ids for each in topic.assignments]
    cluster = request.services.cluster
    try:
        if not cluster.is_controller:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        if is_repeated:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{topic.name} is named twice")
        if not has_room:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, TOO_MANY_PARTITIONS)
        if has_mutation_quota(request) and not validate_only:
            added = cluster.create_partitions(topic.name, topic.count, given, validate_only=True)
            take_mutations(request, len(added), strict_since=_STRICT_QUOTA_VERSION)
        added = cluster.create_partitions(topic.name, topic.count, given, validate_only=validate_only)
    except KafkaError as error:
        return Outcome.refused(error)
    if not validate_only:
        conditions[topic.name] = has_leaders(topic.name, added)
        change = {"partitions": (topic.count - len(added), topic.count)}
        note_change(request, "partitions_created", f"Topic:{topic.name}", change)
    return DONE


def _result(name: str, outcome: Outcome) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=name, error_code=outcome.code, error_message=outcome.message)
