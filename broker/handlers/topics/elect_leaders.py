"""ElectLeaders (43), versions 0-2. For the controller; others answer NOT_CONTROLLER.

Behavior: elects the preferred replica of each partition if it is in sync (type 0), or any live replica if there is no
leader (type 1). Null stands for all partitions. Errors of a partition: ELECTION_NOT_NEEDED, left out if all partitions
were requested; PREFERRED_LEADER_NOT_AVAILABLE; ELIGIBLE_LEADERS_NOT_AVAILABLE; UNKNOWN_TOPIC_OR_PARTITION;
INVALID_TOPIC_EXCEPTION while the topic is being deleted. The response waits until this broker's metadata shows the new
leaders; partitions that are late after `timeout_ms` are REQUEST_TIMED_OUT. An unknown type is INVALID_REQUEST.

Version notes: version 0 elects preferred leaders only, and has no error code for the whole request.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.broker.cluster.metadata import MetadataSnapshot
from ottla.broker.controller.leader_elections import ElectionResult, ElectionType
from ottla.broker.controller.term import Term
from ottla.broker.requests.access import CLUSTER, check
from ottla.broker.requests.metadata_wait import Condition, answer_when_met
from ottla.broker.requests.on_controller import OnController
from ottla.broker.requests.outcome import DONE, Outcome
from ottla.broker.requests.request import Delayed, TopicsRequest
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.message import Message
from ottla.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

Results = Mapping[TopicPartition, ElectionResult]

_ERROR_VERSION = 1
_LATE = Outcome.of(ErrorCode.REQUEST_TIMED_OUT, "The leader is elected, but not all brokers know it yet.")


def elect_leaders(request: TopicsRequest) -> Message | Delayed:
    """Elect leaders on the controller's thread, and wait until the metadata shows them."""
    body: ElectLeadersRequest = request.body
    asked = _asked(body)
    try:
        check(request, CLUSTER)
        election_type = ElectionType(body.election_type)
    except KafkaError as error:
        return _refusal(request, error, asked)
    except ValueError:
        detail = f"unknown election type {body.election_type}"
        return _refusal(request, KafkaError(ErrorCode.INVALID_REQUEST, detail), asked)

    def answer(outcome: Results | KafkaError) -> Message | Delayed:
        return _refusal(request, outcome, asked) if isinstance(outcome, KafkaError) else _wait(request, outcome)

    return OnController(request.services.controller, lambda term: _elect(term, election_type, asked), answer)


def _asked(body: ElectLeadersRequest) -> list[TopicPartition] | None:
    """Return the partitions to elect leaders for, each once; None for all."""
    if body.topic_partitions is None:
        return None
    named = (TopicPartition(each.topic, index) for each in body.topic_partitions for index in each.partitions)
    return list(dict.fromkeys(named))


def _elect(term: Term, election_type: ElectionType, asked: list[TopicPartition] | None) -> Results:
    if asked is not None:
        return term.elections.elect(election_type, asked)
    kept = [partition for partition in term.context.partitions() if partition.topic not in term.context.deleting]
    results = term.elections.elect(election_type, kept)
    needless = ErrorCode.ELECTION_NOT_NEEDED
    return {partition: result for partition, result in results.items() if result.code is not needless}


def _wait(request: TopicsRequest, results: Results) -> Message | Delayed:
    leaders: dict[str, dict[int, int]] = {}
    for partition, result in results.items():
        if result.code is ErrorCode.NONE:
            leaders.setdefault(partition.topic, {})[partition.partition] = result.leader

    def answer(_late: object) -> Message:
        snapshot = request.services.metadata.snapshot
        return _response(
            ErrorCode.NONE, {partition: _outcome(snapshot, partition, result) for partition, result in results.items()}
        )

    conditions = {topic: _are_led_by(topic, expected) for topic, expected in leaders.items()}
    return answer_when_met(request, request.body.timeout_ms, conditions, answer)


def _are_led_by(topic: str, leaders: Mapping[int, int]) -> Condition:
    """Return the condition that each of these partitions has the given leader."""

    def is_met(snapshot: MetadataSnapshot) -> bool:
        return all(_is_led_by(snapshot, TopicPartition(topic, index), leader) for index, leader in leaders.items())

    return is_met


def _is_led_by(snapshot: MetadataSnapshot, partition: TopicPartition, leader: int) -> bool:
    known = snapshot.partition(*partition)
    return known is not None and known.leader == leader


def _outcome(snapshot: MetadataSnapshot, partition: TopicPartition, result: ElectionResult) -> Outcome:
    if result.code is not ErrorCode.NONE:
        return Outcome.of(result.code)
    return DONE if _is_led_by(snapshot, partition, result.leader) else _LATE


def _refusal(request: TopicsRequest, error: KafkaError, asked: list[TopicPartition] | None) -> ElectLeadersResponse:
    code = error.code if request.version >= _ERROR_VERSION else ErrorCode.NONE
    return _response(code, dict.fromkeys(asked or (), Outcome.refused(error)))


def _response(code: ErrorCode, outcomes: Mapping[TopicPartition, Outcome]) -> ElectLeadersResponse:
    topics: dict[str, list[PartitionResult]] = {}
    for partition, outcome in outcomes.items():
        row = PartitionResult(partition_id=partition.partition, error_code=outcome.code, error_message=outcome.message)
        topics.setdefault(partition.topic, []).append(row)
    return ElectLeadersResponse(
        throttle_time_ms=0,
        error_code=code,
        replica_election_results=[
            ReplicaElectionResult(topic=topic, partition_result=rows) for topic, rows in topics.items()
        ],
    )
