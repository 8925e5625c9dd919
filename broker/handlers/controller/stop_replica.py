"""StopReplica (5), versions 0-4. From the controller.

Behavior: this broker stops serving the listed partitions, and deletes their logs if requested. A partition that it does
not have is no error. From version 3 on, a leader epoch older than the known one is FENCED_LEADER_EPOCH. Each partition
has its own error code; a failure does not affect the other partitions.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.broker.requests.outcome import PartitionAttempts
from ottla.broker.requests.request import ControlPlaneRequest
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.stop_replica import (
    EPOCH_DURING_DELETE,
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)
from ottla.protocol.records import NO_LEADER_EPOCH

# These values in place of a leader epoch stop the replica in any epoch.
_ANY_EPOCH = (NO_LEADER_EPOCH, EPOCH_DURING_DELETE)


def stop_replica(request: ControlPlaneRequest) -> StopReplicaResponse:
    """Stop replicas, and delete their logs if requested."""
    body: StopReplicaRequest = request.body
    try:
        with request.services.controller_gate.passing(body.controller_epoch, body.broker_epoch):
            attempts = PartitionAttempts("replica_not_stopped")
            answers = [
                StopReplicaPartitionError(
                    topic_name=key.topic,
                    partition_index=key.partition,
                    error_code=_stop(request, key, epoch, delete, attempts),
                )
                for key, epoch, delete in _asked(body)
            ]
    except KafkaError as error:
        return StopReplicaResponse(error_code=error.code, partition_errors=[])
    return StopReplicaResponse(error_code=0, partition_errors=answers)


def _asked(body: StopReplicaRequest) -> Iterator[tuple[TopicPartition, int, bool]]:
    for old in body.ungrouped_partitions:
        yield TopicPartition(old.topic_name, old.partition_index), NO_LEADER_EPOCH, body.delete_partitions
    for topic in body.topics:
        for index in topic.partition_indexes:
            yield TopicPartition(topic.name, index), NO_LEADER_EPOCH, body.delete_partitions
    for state in body.topic_states:
        for partition in state.partition_states:
            key = TopicPartition(state.topic_name, partition.partition_index)
            yield key, partition.leader_epoch, partition.delete_partition


def _stop(
    request: ControlPlaneRequest, key: TopicPartition, leader_epoch: int, delete: bool, attempts: PartitionAttempts
) -> ErrorCode:
    partitions = request.services.partitions
    known = partitions.find(key)
    if known is not None and leader_epoch not in _ANY_EPOCH and leader_epoch < known.role.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return attempts.attempt(key, lambda: partitions.drop(key, delete=delete))
