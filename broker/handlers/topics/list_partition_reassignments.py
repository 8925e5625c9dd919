"""ListPartitionReassignments (46), versions 0. For the controller; others answer NOT_CONTROLLER.

Behavior: returns the partitions that are being reassigned, of those named or of all: their replicas, and which of these
are being added and removed. A partition is listed until its old replicas are deleted. Unknown partitions, and those
that do not move, are left out. Moves that wait for their turn are listed as if they had started. `timeout_ms` is not
used, because nothing is waited for.

Version notes: there is one version.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.broker.controller.context import ReplicaAssignment
from ottla.broker.requests.on_controller import OnController
from ottla.broker.requests.outcome import Outcome
from ottla.broker.requests.request import Delayed, TopicsRequest
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def list_partition_reassignments(request: TopicsRequest) -> Delayed:
    """List the reassignments on the controller's thread."""
    body: ListPartitionReassignmentsRequest = request.body
    chosen = (
        None
        if body.topics is None
        else {TopicPartition(topic.name, index) for topic in body.topics for index in topic.partition_indexes}
    )

    def answer(outcome: Mapping[TopicPartition, ReplicaAssignment] | KafkaError) -> ListPartitionReassignmentsResponse:
        if isinstance(outcome, KafkaError):
            code, message = Outcome.refused(outcome)
            return ListPartitionReassignmentsResponse(
                throttle_time_ms=0, error_code=code, error_message=message, topics=[]
            )
        return ListPartitionReassignmentsResponse(
            throttle_time_ms=0, error_code=ErrorCode.NONE, error_message=None, topics=_topics(outcome)
        )

    return OnController(request.services.controller, lambda term: term.moves.listing(chosen), answer)


def _topics(found: Mapping[TopicPartition, ReplicaAssignment]) -> list[OngoingTopicReassignment]:
    topics: dict[str, list[OngoingPartitionReassignment]] = {}
    for partition, assignment in found.items():
        topics.setdefault(partition.topic, []).append(
            OngoingPartitionReassignment(
                partition_index=partition.partition,
                replicas=list(assignment.replicas),
                adding_replicas=list(assignment.adding),
                removing_replicas=list(assignment.removing),
            )
        )
    return [OngoingTopicReassignment(name=name, partitions=partitions) for name, partitions in topics.items()]
