"""CreateTopics (19), versions 0-7. For the controller; others answer NOT_CONTROLLER for each topic.

Behavior: checks each topic and writes it to ZooKeeper. A count of -1 stands for the default. Instead of counts, the
request may give the replicas of each partition (both: INVALID_REQUEST). An invalid name, count, assignment or option is
an error of its topic, with the reason. A topic that is named twice is INVALID_REQUEST both times; an option without a
value is INVALID_CONFIG. The response waits until all partitions have leaders. Topics that are late after `timeout_ms`
are REQUEST_TIMED_OUT, although they are created; if it is 0 or less, this is true for all of them.

Version notes: `validate_only` from version 1 on. Clients send -1 for counts from version 4 on; it means the same
before. 5 returns the counts and all options of the new topic to clients that may describe them, 7 its id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set

from ottla.broker.cluster.topics import TopicCreation, TopicSpec
from ottla.broker.config import TOPIC_OPTIONS, TopicConfig
from ottla.broker.requests.access import TOPIC, allows, denied
from ottla.broker.requests.metadata_wait import answer_when_met, has_leaders
from ottla.broker.requests.outcome import Outcome
from ottla.broker.requests.request import Delayed, TopicsRequest
from ottla.broker.requests.throttling import has_mutation_quota, take_mutations
from ottla.broker.requests.topic_creation import TOO_MANY_PARTITIONS, create_topic, fits_in_request
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.message import Message
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

_DETAILS_VERSION = 5
_STRICT_QUOTA_VERSION = 6
_REFUSED = Outcome.of(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
_LATE = Outcome.of(ErrorCode.REQUEST_TIMED_OUT, "The topic is created, but not all of its partitions have leaders yet.")


def create_topics(request: TopicsRequest) -> Message | Delayed:
    """Create topics, and wait for their leaders."""
    body: CreateTopicsRequest = request.body
    counts = Counter(topic.name for topic in body.topics)
    has_room = fits_in_request(request, map(_partition_count, body.topics))
    hidden = denied(request, TOPIC, counts)
    made = [
        (
            topic.name,
            _REFUSED
            if topic.name in hidden
            else _create(request, topic, is_repeated=counts[topic.name] > 1, has_room=has_room),
        )
        for topic in body.topics
    ]

    def answer(late: Set[str]) -> CreateTopicsResponse:
        return CreateTopicsResponse(
            topics=[_result(request, name, _LATE if name in late else result) for name, result in made]
        )

    waited_for = {
        name: has_leaders(name, result.assignment)
        for name, result in made
        if isinstance(result, TopicCreation) and not body.validate_only
    }
    return answer_when_met(request, body.timeout_ms, waited_for, answer)


def _partition_count(topic: CreatableTopic) -> int:
    return len(topic.assignments) or max(topic.num_partitions, 1)


def _create(
    request: TopicsRequest, topic: CreatableTopic, *, is_repeated: bool, has_room: bool
) -> TopicCreation | Outcome:
    try:
        if not request.services.cluster.is_controller:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        if is_repeated:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{topic.name} is named twice")
        if not has_room:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, TOO_MANY_PARTITIONS)
        wanted, validate_only = _wanted(topic), request.body.validate_only
        if has_mutation_quota(request) and not validate_only:
            partitions = len(create_topic(request, wanted, validate_only=True).assignment)
            take_mutations(request, partitions, strict_since=_STRICT_QUOTA_VERSION)
        return create_topic(request, wanted, validate_only=validate_only)
    except KafkaError as error:
        return Outcome.refused(error)


def _wanted(topic: CreatableTopic) -> TopicSpec:
    assignment = {each.partition_index: each.broker_ids for each in topic.assignments}
    if len(assignment) < len(topic.assignments):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "a partition is named twice")
    configs = {config.name: config.value for config in topic.configs if config.value is not None}
    if nulls := sorted(config.name for config in topic.configs if config.value is None):
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"options without a value: {', '.join(nulls)}")
    return TopicSpec(topic.name, topic.num_partitions, topic.replication_factor, assignment, configs)


def _result(request: TopicsRequest, name: str, result: TopicCreation | Outcome) -> CreatableTopicResult:
    if isinstance(result, Outcome):
        return CreatableTopicResult(name=name, error_code=result.code, error_message=result.message)
    if request.version < _DETAILS_VERSION:
        return CreatableTopicResult(name=name, error_code=0, error_message=None)
    if not allows(request, TOPIC, name, as_api=Api.DESCRIBE_CONFIGS, log_if_denied=False):
        return CreatableTopicResult(
            name=name,
            topic_id=result.id,
            error_code=0,
            error_message=None,
            topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            configs=None,
        )
    return CreatableTopicResult(
        name=name,
        topic_id=result.id,
        error_code=0,
        error_message=None,
        num_partitions=len(result.assignment),
        replication_factor=result.replication_factor,
        configs=[_described(result.config, option) for option in TOPIC_OPTIONS],
    )


def _described(config: TopicConfig, name: str) -> CreatableTopicConfigs:
    found = config.resolve(name)
    return CreatableTopicConfigs(
        name=name,
        value=found.value,
        read_only=False,
        config_source=found.source,
        is_sensitive=found.option.sensitive,
    )
