"""Moving leadership and replicas away from a broker before it stops, so that clients do not notice the stop."""

from __future__ import annotations

import structlog

from ottla.broker.controller.context import ControllerContext, Replica
from ottla.broker.controller.partition_states import LeaderAndIsr, ReplicaState, controlled_shutdown_election
from ottla.broker.controller.transitions import Transitions
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import UNKNOWN_BROKER_EPOCH, TopicPartition

log = structlog.get_logger(__name__)


class ControlledShutdown:
    """Prepares brokers for their shutdown, in one term. A broker that registers again is no longer shutting down."""

    def __init__(self, context: ControllerContext, transitions: Transitions) -> None:
        self._context = context
        self._transitions = transitions

    def begin(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """Move leadership and ISR membership to other brokers; return the partitions that the broker still leads.

        Partitions with a single replica do not count: no other broker could serve them.
        """
        registered = self._context.brokers.get(broker_id)
        if registered is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} is not registered")
        if broker_epoch not in (UNKNOWN_BROKER_EPOCH, registered.epoch):
            detail = f"broker {broker_id} has epoch {registered.epoch}, not {broker_epoch}"
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, detail)
        self._context.shutting_down.add(broker_id)
        replicas = [replica for replica in self._context.replicas_on([broker_id]) if self._is_moved(replica)]
        led = self._led(replicas)
        self._transitions.elect(led, self._election)
        followed = [replica for replica in replicas if replica.topic_partition not in set(led)]
        self._transitions.move_replicas(followed, ReplicaState.OFFLINE)
        remaining = self._led(replicas)
        log.info("broker_shutting_down", broker=broker_id, led=len(led), remaining=len(remaining))
        return remaining

    def _is_moved(self, replica: Replica) -> bool:
        partition = replica.topic_partition
        return (
            len(self._context.assignment(partition).replicas) > 1
            and partition in self._context.leadership
            and partition.topic not in self._context.deleting
        )

    def _led(self, replicas: list[Replica]) -> list[TopicPartition]:
        return [
            replica.topic_partition
            for replica in replicas
            if self._context.leadership[replica.topic_partition].leader == replica.broker
        ]

    def _election(self, partition: TopicPartition, state: LeaderAndIsr) -> LeaderAndIsr | None:
        return controlled_shutdown_election(
            self._context.assignment(partition).replicas,
            state,
            self._context.working_replicas(partition),
            self._context.shutting_down,
        )
