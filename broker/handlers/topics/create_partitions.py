"""CreatePartitions (37), versions 0-3. For the controller; others answer NOT_CONTROLLER for each topic.

Behavior: each topic gets as many partitions as it is to have in all, never fewer than it has: INVALID_PARTITIONS. The
replicas of the new ones may be given, as many as there are new ones, else INVALID_REPLICA_ASSIGNMENT. Other refusals:
UNKNOWN_TOPIC_OR_PARTITION, also for a topic that is being deleted; REASSIGNMENT_IN_PROGRESS; INVALID_REQUEST for a
topic that is named twice. The answer waits until the new partitions have leaders; topics whose have none when
`timeout_ms` is over are REQUEST_TIMED_OUT, and all of them at once if it is 0 or less. `validate_only` checks only.

Version notes: none; version 2 is flexible, and 3 differs in what the codes of quotas mean.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set

from ottla.broker.requests.access import TOPIC, check
from ottla.broker.requests.metadata_wait import Condition, answer_when_met, has_leaders
from ottla.broker.requests.outcome import DONE, Outcome
from ottla.broker.requests.request import Delayed, TopicsRequest
from ottla.broker.requests.throttling import has_mutation_quota, take_mutations
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.message import Message
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

_STRICT_QUOTA_VERSION = 3
_LATE = Outcome.of(ErrorCode.REQUEST_TIMED_OUT, "The partitions are created, and not all of them have leaders yet.")


def create_partitions(request: TopicsRequest) -> Message | Delayed:
    """Enlarge topics, and wait for the leaders of what is new."""
    body: CreatePartitionsRequest = request.body
    counts = Counter(topic.name for topic in body.topics)
    conditions: dict[str, Condition] = {}
    results = [
        (topic.name, _enlarge(request, topic, conditions, is_repeated=counts[topic.name] > 1)) for topic in body.topics
    ]

    def answer(late: Set[str]) -> CreatePartitionsResponse:
        return CreatePartitionsResponse(
            throttle_time_ms=0,
            results=[_result(name, _LATE if name in late else outcome) for name, outcome in results],
        )

    return answer_when_met(request, body.timeout_ms, conditions, answer)


def _enlarge(
    request: TopicsRequest, topic: CreatePartitionsTopic, conditions: dict[str, Condition], *, is_repeated: bool
) -> Outcome:
    validate_only = request.body.validate_only
    given = None if topic.assignments is None else [each.broker_ids for each in topic.assignments]
    cluster = request.services.cluster
    try:
        if not cluster.is_controller:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        if is_repeated:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{topic.name} is to be enlarged twice")
        check(request, TOPIC, topic.name)
        if has_mutation_quota(request) and not validate_only:
            added = cluster.create_partitions(topic.name, topic.count, given, validate_only=True)
            take_mutations(request, len(added), strict_since=_STRICT_QUOTA_VERSION)
        added = cluster.create_partitions(topic.name, topic.count, given, validate_only=validate_only)
    except KafkaError as error:
        return Outcome.refused(error)
    if not validate_only:
        conditions[topic.name] = has_leaders(topic.name, added)
    return DONE


def _result(name: str, outcome: Outcome) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=name, error_code=outcome.code, error_message=outcome.message)
