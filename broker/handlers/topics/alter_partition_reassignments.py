"""AlterPartitionReassignments (45), versions 0. For the controller; others answer NOT_CONTROLLER for the whole request.

Behavior: starts to move each partition to the given replicas; null cancels a move in progress. The response comes when
the target is in ZooKeeper and the brokers are being notified, long before the data has moved. Errors of a partition:
UNKNOWN_TOPIC_OR_PARTITION, also while its topic is being deleted; INVALID_REPLICA_ASSIGNMENT if there are no replicas,
if a broker is named twice, or if a new replica's broker is not alive; NO_REASSIGNMENT_IN_PROGRESS if there is nothing
to cancel. A new move replaces the current one at any time. `timeout_ms` is not used, because nothing is waited for.
With our own tagged fields, which Kafka lacks, the moves start a few at a time and are throttled; cancelling a move that
waits for its turn drops it.

Version notes: there is one version.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.broker.controller.reassignments.move_queue import MoveLimits
from ottla.broker.requests.audited import note_change
from ottla.broker.requests.on_controller import OnController
from ottla.broker.requests.outcome import DONE, Outcome
from ottla.broker.requests.request import Delayed, TopicsRequest
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
)


def alter_partition_reassignments(request: TopicsRequest) -> Delayed:
    """Start or cancel moves on the controller's thread."""
    body: AlterPartitionReassignmentsRequest = request.body
    requested = {
        TopicPartition(topic.name, partition.partition_index): partition.replicas
        for topic in body.topics
        for partition in topic.partitions
    }

    limits = MoveLimits(body.moves_per_broker, body.bytes_per_second) if body.moves_per_broker > 0 else None

    def answer(
        outcome: Mapping[TopicPartition, KafkaError | None] | KafkaError,
    ) -> AlterPartitionReassignmentsResponse:
        if isinstance(outcome, KafkaError):
            code, message = Outcome.refused(outcome)
            return AlterPartitionReassignmentsResponse(
                throttle_time_ms=0, error_code=code, error_message=message, responses=[]
            )
        moved: dict[str, dict[str, object]] = {}
        for partition, error in outcome.items():
            if error is None:
                moved.setdefault(partition.topic, {})[str(partition.partition)] = requested[partition]
        for topic, replicas in moved.items():
            note_change(request, "replicas_reassigned", f"Topic:{topic}", {"replicas": replicas})
        return AlterPartitionReassignmentsResponse(
            throttle_time_ms=0,
            error_code=ErrorCode.NONE,
            error_message=None,
            responses=[_result(topic, outcome) for topic in body.topics],
        )

    return OnController(request.services.controller, lambda term: term.moves.alter(requested, limits), answer)


def _result(topic: ReassignableTopic, errors: Mapping[TopicPartition, KafkaError | None]) -> ReassignableTopicResponse:
    partitions = []
    for partition in topic.partitions:
        error = errors[TopicPartition(topic.name, partition.partition_index)]
        code, message = DONE if error is None else Outcome.refused(error)
        partitions.append(
            ReassignablePartitionResponse(
                partition_index=partition.partition_index, error_code=code, error_message=message
            )
        )
    return ReassignableTopicResponse(name=topic.name, partitions=partitions)
