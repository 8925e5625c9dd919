"""LeaderAndIsr (4), versions 0-7. From the controller.

Behavior: this broker becomes leader or follower of the listed partitions, and creates missing logs. A leader epoch that
is older than the known one changes nothing and is STALE_CONTROLLER_EPOCH; the same epoch again is fine. A failed log
directory is KAFKA_STORAGE_ERROR; another topic id is INCONSISTENT_TOPIC_ID. Each partition has its own error code; a
failure does not affect the other partitions.
"""

from __future__ import annotations

import structlog

from ottla.broker.replication.partition import PartitionRole
from ottla.broker.requests.outcome import PartitionAttempts
from ottla.broker.requests.request import ControlPlaneRequest
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    LeaderAndIsrTopicState,
)

log = structlog.get_logger(__name__)

_GROUPED_ERRORS_VERSION = 5
_REPORTED_MAX = 20


def leader_and_isr(request: ControlPlaneRequest) -> LeaderAndIsrResponse:
    """Take the roles that the controller assigns."""
    body: LeaderAndIsrRequest = request.body
    topics = body.topic_states or [
        LeaderAndIsrTopicState(topic_name=state.topic_name, partition_states=[state])
        for state in body.ungrouped_partition_states
    ]
    try:
        with request.services.controller_gate.passing(body.controller_epoch, body.broker_epoch):
            request.services.partitions.create_logs(
                (TopicPartition(topic.topic_name, state.partition_index), topic.topic_id, state.is_new)
                for topic in topics
                for state in topic.partition_states
                if request.services.partitions.node_id in state.replicas
            )
            attempts = PartitionAttempts("role_not_taken")
            errors = [
                (topic, state, _take_role(request, topic, state, attempts))
                for topic in topics
                for state in topic.partition_states
            ]
    except KafkaError as error:
        return LeaderAndIsrResponse(error_code=error.code)
    _report(body.controller_epoch, errors)
    if request.version < _GROUPED_ERRORS_VERSION:
        return LeaderAndIsrResponse(
            error_code=0,
            partition_errors=[
                LeaderAndIsrPartitionError(
                    topic_name=topic.topic_name, partition_index=state.partition_index, error_code=code
                )
                for topic, state, code in errors
            ],
        )
    by_topic: dict[bytes, list[LeaderAndIsrPartitionError]] = {}
    for topic, state, code in errors:
        answer = LeaderAndIsrPartitionError(partition_index=state.partition_index, error_code=code)
        by_topic.setdefault(topic.topic_id, []).append(answer)
    return LeaderAndIsrResponse(
        error_code=0,
        topics=[
            LeaderAndIsrTopicError(topic_id=topic_id, partition_errors=found) for topic_id, found in by_topic.items()
        ],
    )


def _report(
    controller_epoch: int, taken: list[tuple[LeaderAndIsrTopicState, LeaderAndIsrPartitionState, ErrorCode]]
) -> None:
    """Log which broker leads which partition, without a line for each of thousands."""
    log.info(
        "roles_taken",
        controller_epoch=controller_epoch,
        count=len(taken),
        roles=[
            f"{topic.topic_name}-{state.partition_index} leader {state.leader} epoch {state.leader_epoch}"
            + ("" if code is ErrorCode.NONE else f" {code.name}")
            for topic, state, code in taken[:_REPORTED_MAX]
        ],
    )


def _take_role(
    request: ControlPlaneRequest,
    topic: LeaderAndIsrTopicState,
    state: LeaderAndIsrPartitionState,
    attempts: PartitionAttempts,
) -> ErrorCode:
    partitions = request.services.partitions
    key = TopicPartition(topic.topic_name, state.partition_index)
    known = partitions.find(key)
    if known is not None and state.leader_epoch < known.role.leader_epoch:
        return ErrorCode.STALE_CONTROLLER_EPOCH
    if known is not None and known.topic_id != topic.topic_id:
        return ErrorCode.INCONSISTENT_TOPIC_ID
    role = PartitionRole(
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        replicas=tuple(state.replicas),
        isr=frozenset(state.isr),
        adding=tuple(state.adding_replicas),
        removing=tuple(state.removing_replicas),
        leader_recovery_state=state.leader_recovery_state,
    )
    if partitions.node_id not in role.replicas:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return attempts.attempt(key, lambda: partitions.take_role(key, topic.topic_id, role, is_new=state.is_new))
