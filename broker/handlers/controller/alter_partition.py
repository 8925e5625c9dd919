"""AlterPartition (56), versions 0-3. For the controller: a leader asks for a change of the ISR of partitions.

Behavior: returns NONE and the current state of a partition, even if the change was already made. Errors of the whole
request: NOT_CONTROLLER; STALE_BROKER_EPOCH unless the broker is registered with this epoch. Errors of a partition:
UNKNOWN_TOPIC_ID; UNKNOWN_TOPIC_OR_PARTITION (also while its topic is being deleted); NOT_CONTROLLER (the leader epoch
is newer than ours); FENCED_LEADER_EPOCH; INVALID_UPDATE_VERSION (another partition epoch); INVALID_REQUEST (the sender
is not the leader, the ISR lacks the leader or contains a broker that is no replica, or the recovery state is
impossible); INELIGIBLE_REPLICA (a member is not live, is about to stop, or has another epoch than the leader thinks).

Version notes: before version 2, topics are named, and OPERATION_NOT_ATTEMPTED replaces INELIGIBLE_REPLICA. Version 1
adds the recovery state, version 3 the epochs of the members.
"""

from __future__ import annotations

from ottla.broker.controller.isr_updates import IsrOutcome, IsrUpdate
from ottla.broker.controller.term import Term
from ottla.broker.requests.on_controller import OnController
from ottla.broker.requests.request import ControlPlaneRequest, Delayed
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import UNKNOWN_BROKER_EPOCH, TopicPartition
from ottla.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    RequestPartitionData,
    RequestTopicData,
    ResponsePartitionData,
    ResponseTopicData,
)

_TOPIC_ID_VERSION = 2
_BROKER_EPOCHS_VERSION = 3
_NOTHING_KNOWN = -1


def alter_partition(request: ControlPlaneRequest) -> Delayed:
    """Change ISRs on the controller's thread."""
    body: AlterPartitionRequest = request.body
    version = request.version

    def answer(outcome: list[ResponseTopicData] | KafkaError) -> AlterPartitionResponse:
        if isinstance(outcome, KafkaError):
            return AlterPartitionResponse(throttle_time_ms=0, error_code=outcome.code, topics=[])
        return AlterPartitionResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, topics=outcome)

    return OnController(request.services.controller, lambda term: _alter(term, body, version), answer)


def _alter(term: Term, body: AlterPartitionRequest, version: int) -> list[ResponseTopicData]:
    by_id = {topic_id: name for name, topic_id in term.context.topic_ids.items()}
    names = [by_id.get(topic.topic_id) if version >= _TOPIC_ID_VERSION else topic.topic_name for topic in body.topics]
    updates = {
        TopicPartition(name, partition.partition_index): _update(partition, version)
        for name, topic in zip(names, body.topics, strict=True)
        if name is not None
        for partition in topic.partitions
    }
    outcomes = term.isr_updates.update(body.broker_id, body.broker_epoch, updates)
    return [_result(name, topic, outcomes, version) for name, topic in zip(names, body.topics, strict=True)]


def _update(partition: RequestPartitionData, version: int) -> IsrUpdate:
    if version >= _BROKER_EPOCHS_VERSION:
        isr = tuple((member.broker_id, member.broker_epoch) for member in partition.new_isr_with_epochs)
    else:
        isr = tuple((broker, UNKNOWN_BROKER_EPOCH) for broker in partition.new_isr)
    return IsrUpdate(partition.leader_epoch, partition.partition_epoch, isr, partition.leader_recovery_state)


def _result(
    name: str | None, topic: RequestTopicData, outcomes: dict[TopicPartition, IsrOutcome], version: int
) -> ResponseTopicData:
    return ResponseTopicData(
        topic_name=topic.topic_name,
        topic_id=topic.topic_id,
        partitions=[
            _partition_result(
                partition.partition_index,
                ErrorCode.UNKNOWN_TOPIC_ID
                if name is None
                else outcomes[TopicPartition(name, partition.partition_index)],
                version,
            )
            for partition in topic.partitions
        ],
    )


def _partition_result(index: int, outcome: IsrOutcome, version: int) -> ResponsePartitionData:
    if isinstance(outcome, ErrorCode):
        if outcome is ErrorCode.INELIGIBLE_REPLICA and version < _TOPIC_ID_VERSION:
            outcome = ErrorCode.OPERATION_NOT_ATTEMPTED
        return ResponsePartitionData(
            partition_index=index,
            error_code=outcome,
            leader_id=_NOTHING_KNOWN,
            leader_epoch=_NOTHING_KNOWN,
            isr=[],
            partition_epoch=_NOTHING_KNOWN,
        )
    return ResponsePartitionData(
        partition_index=index,
        error_code=ErrorCode.NONE,
        leader_id=outcome.leader,
        leader_epoch=outcome.leader_epoch,
        isr=list(outcome.isr),
        leader_recovery_state=outcome.leader_recovery_state,
        partition_epoch=outcome.partition_epoch,
    )
