"""ISR changes that leaders ask the controller for: AlterPartition.

A leader proposes an ISR based on the state that it knows, identified by leader epoch and partition epoch. The
controller writes it if that is still the state, so an ISR never changes without an election noticing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

import structlog

from ottla.broker.controller.context import ControllerContext, Replica
from ottla.broker.controller.messages.outbox import Outbox
from ottla.broker.controller.partition_states import RECOVERED, RECOVERING, LeaderAndIsr
from ottla.broker.controller.state_store import StateStore
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import UNKNOWN_BROKER_EPOCH, TopicPartition

log = structlog.get_logger(__name__)


class IsrUpdate(NamedTuple):
    """The ISR that a leader wants for a partition, and the state that it is based on."""

    leader_epoch: int
    partition_epoch: int
    # Brokers, each with the epoch of the registration that the leader saw catch up; -1 if it is not known.
    isr: tuple[tuple[int, int], ...]
    leader_recovery_state: int = RECOVERED

    @property
    def members(self) -> frozenset[int]:
        """The brokers."""
        return frozenset(broker for broker, _ in self.isr)


# The state of a partition after an update, or why it was refused.
IsrOutcome = LeaderAndIsr | ErrorCode


class IsrUpdates:
    """Applies updates in one term."""

    def __init__(
        self,
        context: ControllerContext,
        store: StateStore,
        outbox: Outbox,
        on_change: Callable[[list[TopicPartition]], None],
    ) -> None:
        """`on_change` is called with the partitions whose ISR has changed."""
        self._context = context
        self._store = store
        self._outbox = outbox
        self._on_change = on_change

    def update(
        self, broker_id: int, broker_epoch: int, updates: Mapping[TopicPartition, IsrUpdate]
    ) -> dict[TopicPartition, IsrOutcome]:
        """Apply the updates of a leader; STALE_BROKER_EPOCH if that broker is registered with another epoch, or not at
        all.
        """
        registered = self._context.brokers.get(broker_id)
        if registered is None or registered.epoch != broker_epoch:
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} with epoch {broker_epoch}")
        outcomes: dict[TopicPartition, IsrOutcome] = {}
        wanted: dict[TopicPartition, LeaderAndIsr] = {}
        for partition, update in updates.items():
            present = self._context.leadership.get(partition)
            is_deleted = partition.topic in self._context.deleting and partition not in self._context.reassigning
            if present is None or is_deleted:
                outcomes[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif is_present_state(present, broker_id, update):
                outcomes[partition] = present
            elif (refusal := self._refusal(partition, present, broker_id, update)) is not None:
                outcomes[partition] = refusal
            else:
                wanted[partition] = replace(
                    present,
                    isr=tuple(broker for broker, _ in update.isr),
                    leader_recovery_state=update.leader_recovery_state,
                )
        return outcomes | self._write(wanted)

    def _refusal(
        self, partition: TopicPartition, present: LeaderAndIsr, broker_id: int, update: IsrUpdate
    ) -> ErrorCode | None:
        replicas = self._context.assignment(partition).replicas
        refusal = refusal_of(present, replicas, broker_id, update)
        if refusal is None and not all(self._is_eligible(partition, *member) for member in update.isr):
            refusal = ErrorCode.INELIGIBLE_REPLICA
        if refusal is not None:
            log.debug(
                "isr_update_refused", partition=str(partition), error=refusal.name, update=update, present=present
            )
        return refusal

    def _is_eligible(self, partition: TopicPartition, broker: int, epoch: int) -> bool:
        """Return whether a replica may be in sync: it works, is not shutting down, and is the one that the leader saw.

        A broker that registered again may have lost records since it caught up, so an earlier registration does not
        count.
        """
        if not self._context.is_online(Replica(partition.topic, partition.partition, broker)):
            return False
        return epoch in (UNKNOWN_BROKER_EPOCH, self._context.brokers[broker].epoch)

    def _write(self, wanted: Mapping[TopicPartition, LeaderAndIsr]) -> dict[TopicPartition, IsrOutcome]:
        if not wanted:
            return {}
        written = self._store.replace(wanted)
        self._context.leadership |= written
        lost = [partition for partition in wanted if partition not in written]
        if lost:
            # Somebody else has changed these nodes; leaders continue with what the nodes hold now.
            self._context.leadership |= self._store.read(lost)
        self._outbox.add_metadata(wanted)
        if written:
            some = {str(partition): state.isr for partition, state in list(written.items())[:20]}
            log.info("isr_changed", count=len(written), partitions=some)
            self._on_change(list(written))
        return {partition: written.get(partition, ErrorCode.INVALID_UPDATE_VERSION) for partition in wanted}


def is_present_state(present: LeaderAndIsr, broker_id: int, update: IsrUpdate) -> bool:
    """Return whether an update asks for the current state, for example because it was sent again after its answer was
    lost.
    """
    return (
        broker_id == present.leader
        and update.leader_epoch == present.leader_epoch
        and update.partition_epoch <= present.partition_epoch
        and update.members == frozenset(present.isr)
        and update.leader_recovery_state == present.leader_recovery_state
    )


def refusal_of(present: LeaderAndIsr, replicas: tuple[int, ...], broker_id: int, update: IsrUpdate) -> ErrorCode | None:
    """Return why an update does not fit a state; None if it does."""
    if update.leader_epoch > present.leader_epoch:
        # The leader knows of an election that we do not know, by another controller.
        return ErrorCode.NOT_CONTROLLER
    if update.leader_epoch < present.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if update.partition_epoch != present.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    is_well_formed = (
        broker_id == present.leader
        and broker_id in update.members
        and len(update.members) == len(update.isr)
        and update.members <= set(replicas)
        and update.leader_recovery_state in (RECOVERED, RECOVERING)
    )
    is_recovering = update.leader_recovery_state == RECOVERING
    falls_back = is_recovering and present.leader_recovery_state == RECOVERED
    if not is_well_formed or falls_back or (is_recovering and len(update.isr) > 1):
        return ErrorCode.INVALID_REQUEST
    return None
