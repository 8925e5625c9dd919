"""The numbers that a controller publishes."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from ottla.broker.controller.context import ControllerContext, Replica
from ottla.broker.controller.partition_states import PartitionState, ReplicaState
from ottla.protocol.identifiers import NO_LEADER


class ElectionCounters(Struct):
    """Elections of partition leaders in all terms of a broker."""

    # Rounds; one round covers all partitions that an event concerns.
    elections: int = 0
    # Partitions that got an out-of-sync leader.
    unclean_elections: int = 0
    election_seconds: float = 0.0
    last_election_seconds: float = 0.0

    def count(self, seconds: float, unclean: int) -> None:
        """Count a round."""
        self.elections += 1
        self.unclean_elections += unclean
        self.election_seconds += seconds
        self.last_election_seconds = seconds


class ControllerStats(NamedTuple):
    """The state of a controller. While this broker is not the controller, only the counters are not zero."""

    active: bool
    epoch: int
    elections: int
    unclean_elections: int
    election_seconds: float
    last_election_seconds: float
    live_brokers: int = 0
    topics: int = 0
    partitions: int = 0
    # Partitions without a leader.
    offline_partitions: int = 0
    # Partitions that are not led by the first of their replicas.
    preferred_imbalance: int = 0
    # Topics that are being deleted, and their replicas that still exist.
    topics_to_delete: int = 0
    replicas_to_delete: int = 0
    # Those of both that have to wait, usually for a dead broker.
    topics_ineligible: int = 0
    replicas_ineligible: int = 0


def stats_of(context: ControllerContext | None, counters: ElectionCounters) -> ControllerStats:
    """Return the stats, on any thread.

    The context changes meanwhile. Copying a dictionary is one step of the interpreter, so it is safe.
    """
    counted = (
        counters.elections,
        counters.unclean_elections,
        counters.election_seconds,
        counters.last_election_seconds,
    )
    if context is None:
        return ControllerStats(False, -1, *counted)
    deleting = context.deleting.copy()
    leadership = context.leadership.copy()
    states = [state for partition, state in context.partition_states.copy().items() if partition.topic not in deleting]
    assignments = {topic: partitions.copy() for topic, partitions in context.assignments.copy().items()}
    imbalance = sum(
        state.leader != NO_LEADER and state.leader != assignment.replicas[0]
        for (topic, index), state in leadership.items()
        if topic not in deleting and (assignment := assignments.get(topic, {}).get(index)) and assignment.replicas
    )
    replica_states = context.replica_states.copy()
    doomed = [
        replica_states.get(Replica(topic, index, broker), ReplicaState.NON_EXISTENT)
        for topic in deleting
        for index, assignment in assignments.get(topic, {}).items()
        for broker in assignment.replicas
    ]
    return ControllerStats(
        True,
        context.epoch,
        *counted,
        live_brokers=len(context.brokers),
        topics=len(assignments),
        partitions=sum(map(len, assignments.values())),
        offline_partitions=sum(state is not PartitionState.ONLINE for state in states),
        preferred_imbalance=imbalance,
        topics_to_delete=len(deleting),
        replicas_to_delete=sum(state is not ReplicaState.DELETION_SUCCESSFUL for state in doomed),
        topics_ineligible=len(context.ineligible & deleting),
        replicas_ineligible=sum(state is ReplicaState.DELETION_INELIGIBLE for state in doomed),
    )
