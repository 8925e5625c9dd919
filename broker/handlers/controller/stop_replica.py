"""StopReplica (5), versions 0-4. From the controller.

Behavior: this broker stops serving the listed partitions, and deletes their logs if requested. A partition that it does
not have is no error. From version 3 on, a leader epoch older than the known one is FENCED_LEADER_EPOCH. Each partition
has its own error code; a failure does not affect the other partitions. Logs of a deleted topic that can be brought back
are kept aside.
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
    StopReplicaPartitionState,
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
                    error_code=_stop(request, key, state, attempts),
                )
                for key, state in _asked(body)
            ]
    except KafkaError as error:
        return StopReplicaResponse(error_code=error.code, partition_errors=[])
    return StopReplicaResponse(error_code=0, partition_errors=answers)


def _asked(body: StopReplicaRequest) -> Iterator[tuple[TopicPartition, StopReplicaPartitionState]]:
    old = [(each.topic_name, each.partition_index) for each in body.ungrouped_partitions]
    old += [(topic.name, index) for topic in body.topics for index in topic.partition_indexes]
    for topic_name, index in old:
        state = StopReplicaPartitionState(partition_index=index, delete_partition=body.delete_partitions)
        yield TopicPartition(topic_name, index), state
    for topic_state in body.topic_states:
        for state in topic_state.partition_states:
            yield TopicPartition(topic_state.topic_name, state.partition_index), state


def _stop(
    request: ControlPlaneRequest, key: TopicPartition, state: StopReplicaPartitionState, attempts: PartitionAttempts
) -> ErrorCode:
    partitions = request.services.partitions
    known = partitions.find(key)
    leader_epoch = state.leader_epoch
    if known is not None and leader_epoch not in _ANY_EPOCH and leader_epoch < known.role.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    kept_until_ms = state.kept_until_ms if state.kept_until_ms >= 0 else None
    return attempts.attempt(
        key, lambda: partitions.drop(key, delete=state.delete_partition, kept_until_ms=kept_until_ms)
    )
