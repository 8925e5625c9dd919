"""The rules of the controller, as tables and plain functions: which states follow which, and who leads.

partition  NonExistent -> New -> Online <-> Offline -> NonExistent
replica    NonExistent -> New -> Online <-> Offline -> DeletionStarted -> DeletionSuccessful -> NonExistent
                                           Offline, DeletionStarted -> DeletionIneligible -> Offline, Online
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from ottla.protocol.identifiers import NO_LEADER

RECOVERED: Final = 0
RECOVERING: Final = 1


class PartitionState(Enum):
    """The state of a partition in the controller."""

    NEW = "new"
    ONLINE = "online"
    OFFLINE = "offline"
    NON_EXISTENT = "non-existent"


class ReplicaState(Enum):
    """The state of a replica in the controller."""

    NEW = "new"
    ONLINE = "online"
    OFFLINE = "offline"
    DELETION_STARTED = "deletion started"
    DELETION_SUCCESSFUL = "deletion successful"
    DELETION_INELIGIBLE = "deletion ineligible"
    NON_EXISTENT = "non-existent"


# The states from which each state can be reached.
PARTITION_PREVIOUS: Final[Mapping[PartitionState, frozenset[PartitionState]]] = {
    PartitionState.NEW: frozenset({PartitionState.NON_EXISTENT}),
    PartitionState.ONLINE: frozenset({PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE}),
    PartitionState.OFFLINE: frozenset({PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE}),
    PartitionState.NON_EXISTENT: frozenset({PartitionState.OFFLINE}),
}
_PRESENT: Final = frozenset(
    {ReplicaState.NEW, ReplicaState.ONLINE, ReplicaState.OFFLINE, ReplicaState.DELETION_INELIGIBLE}
)
REPLICA_PREVIOUS: Final[Mapping[ReplicaState, frozenset[ReplicaState]]] = {
    ReplicaState.NEW: frozenset({ReplicaState.NON_EXISTENT}),
    ReplicaState.ONLINE: _PRESENT,
    ReplicaState.OFFLINE: _PRESENT,
    ReplicaState.DELETION_STARTED: frozenset({ReplicaState.OFFLINE}),
    ReplicaState.DELETION_SUCCESSFUL: frozenset({ReplicaState.DELETION_STARTED}),
    ReplicaState.DELETION_INELIGIBLE: frozenset({ReplicaState.OFFLINE, ReplicaState.DELETION_STARTED}),
    ReplicaState.NON_EXISTENT: frozenset({ReplicaState.DELETION_SUCCESSFUL}),
}


@dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """The leader of a partition and its in-sync replicas, as in the state node."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    # Epoch of the controller that wrote it.
    controller_epoch: int
    # Version of the state node.
    partition_epoch: int
    leader_recovery_state: int = RECOVERED
    # The broker epoch in which each member of the ISR was in sync. A member that is registered with another epoch has
    # restarted since, and may have lost the end of its log in a power failure.
    lives: Mapping[int, int] = field(default_factory=dict, compare=False)

    def led_by(self, leader: int, isr: Sequence[int], leader_recovery_state: int | None = None) -> LeaderAndIsr:
        """Return the state of the next leader epoch."""
        recovery = self.leader_recovery_state if leader_recovery_state is None else leader_recovery_state
        return replace(
            self,
            leader=leader,
            leader_epoch=self.leader_epoch + 1,
            isr=tuple(isr),
            leader_recovery_state=recovery,
        )


def restarted_members(state: LeaderAndIsr, epochs: Mapping[int, int]) -> set[int]:
    """Return the live members of an ISR that restarted since they were in sync; `epochs` has all live brokers."""
    return {
        broker for broker in state.isr if broker in epochs and state.lives.get(broker, epochs[broker]) != epochs[broker]
    }


def without_restarted(state: LeaderAndIsr, epochs: Mapping[int, int], online: Collection[int]) -> LeaderAndIsr:
    """Remove members that restarted from the ISR, unless no other member could lead."""
    restarted = restarted_members(state, epochs)
    steady = tuple(broker for broker in state.isr if broker not in restarted)
    return state if set(steady).isdisjoint(online) else replace(state, isr=steady)


def initial_state(replicas: Sequence[int], live: Collection[int], controller_epoch: int) -> LeaderAndIsr | None:
    """Return the first state of a partition. All live replicas are in sync, because there are no records yet."""
    isr = tuple(replica for replica in replicas if replica in live)
    return LeaderAndIsr(isr[0], 0, isr, controller_epoch, 0) if isr else None


def offline_election(
    replicas: Sequence[int], state: LeaderAndIsr, live: Collection[int], *, unclean: bool
) -> LeaderAndIsr | None:
    """Choose a leader for a partition that lost its own: the first live replica in sync.

    If no replica in sync is live and `unclean` allows it, choose the first live replica. The records that it lacks are
    lost, so the ISR is that replica alone and the partition counts as recovering.
    """
    for replica in replicas:
        if replica in live and replica in state.isr:
            return state.led_by(replica, [each for each in state.isr if each in live])
    if unclean:
        for replica in replicas:
            if replica in live:
                return state.led_by(replica, [replica], RECOVERING)
    return None


def preferred_election(replicas: Sequence[int], state: LeaderAndIsr, live: Collection[int]) -> LeaderAndIsr | None:
    """Make the first replica of the assignment the leader, if it is live and in sync."""
    preferred = replicas[0]
    return state.led_by(preferred, state.isr) if preferred in live and preferred in state.isr else None


def controlled_shutdown_election(
    replicas: Sequence[int], state: LeaderAndIsr, live: Collection[int], shutting_down: Collection[int]
) -> LeaderAndIsr | None:
    """Move leadership away from brokers that are about to stop. They still count as live, and leave the ISR."""
    isr = [replica for replica in state.isr if replica not in shutting_down]
    for replica in replicas:
        if replica in live and replica in isr:
            return state.led_by(replica, isr)
    return None


def without_replica(state: LeaderAndIsr, replica: int) -> LeaderAndIsr:
    """Remove a replica that went offline from leadership and ISR.

    The last member stays in the ISR, because only that one is known to have every committed record.
    """
    if replica not in state.isr:
        return state
    isr = state.isr if len(state.isr) == 1 else tuple(each for each in state.isr if each != replica)
    return state.led_by(NO_LEADER if state.leader == replica else state.leader, isr)
