"""Moves partitions and replicas from state to state.

A move writes state nodes, keeps the result in the context, and puts into the outbox what brokers must be told.
`partition_states` says which moves are valid; others are logged and skipped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

import structlog

from ottla.broker.controller.context import ControllerContext, Replica
from ottla.broker.controller.messages.outbox import Outbox
from ottla.broker.controller.partition_states import (
    PARTITION_PREVIOUS,
    REPLICA_PREVIOUS,
    LeaderAndIsr,
    PartitionState,
    ReplicaState,
    initial_state,
    offline_election,
    without_replica,
    without_restarted,
)
from ottla.broker.controller.state_store import StateStore
from ottla.broker.controller.stats import ElectionCounters
from ottla.protocol.identifiers import NO_LEADER, TopicPartition

log = structlog.get_logger(__name__)

# Chooses the next leader of a partition; None if there is no candidate.
Election = Callable[[TopicPartition, LeaderAndIsr], LeaderAndIsr | None]


class Transitions:
    """The state machines of partitions and replicas, in one term."""

    def __init__(
        self,
        context: ControllerContext,
        store: StateStore,
        outbox: Outbox,
        *,
        unclean_topics: Callable[[Collection[str]], Collection[str]],
        counters: ElectionCounters,
    ) -> None:
        """`unclean_topics` returns those of some topics that may have out-of-sync leaders."""
        self._context = context
        self._store = store
        self._outbox = outbox
        self._unclean_topics = unclean_topics
        self._counters = counters

    # Partitions

    def move_partitions(self, partitions: Iterable[TopicPartition], target: PartitionState) -> None:
        """Move partitions to a state. For ONLINE, those that have a leader already go through an offline election."""
        valid = [partition for partition in partitions if self._may_enter(partition, target)]
        if target is PartitionState.ONLINE:
            states = self._context.partition_states
            self._initialize([each for each in valid if states[each] is PartitionState.NEW])
            self._elect_offline([each for each in valid if states[each] is PartitionState.OFFLINE])
            return
        for partition in valid:
            if target is PartitionState.NON_EXISTENT:
                self._context.partition_states.pop(partition, None)
            else:
                self._context.partition_states[partition] = target

    def bring_online(self, topic: str | None = None) -> None:
        """Try to elect leaders for all partitions without one, of one topic or of all."""
        waiting = (PartitionState.NEW, PartitionState.OFFLINE)
        partitions = [
            partition
            for partition, state in self._context.partition_states.items()
            if state in waiting
            and partition.topic not in self._context.deleting
            and (topic is None or partition.topic == topic)
        ]
        self.move_partitions(partitions, PartitionState.ONLINE)

    def elect(self, partitions: Sequence[TopicPartition], election: Election) -> set[TopicPartition]:
        """Elect leaders; return the partitions that got one.

        In every election, a member of the ISR that restarted neither leads nor stays in the ISR if another member could
        lead. It joins the ISR again when it has caught up.
        """
        if not partitions:
            return set()
        started = time.monotonic()
        unclean: set[TopicPartition] = set()
        epochs = self._context.broker_epochs

        def noted_election(partition: TopicPartition, state: LeaderAndIsr) -> LeaderAndIsr | None:
            steady = without_restarted(state, epochs, self._context.online_replicas(partition))
            chosen = election(partition, steady)
            if chosen is None:
                return None
            if chosen.leader not in state.isr:
                unclean.add(partition)
            # The new epoch defines which records must be there: from now on, these registrations are in sync.
            return replace(
                chosen, lives={**chosen.lives, **{each: epochs[each] for each in chosen.isr if each in epochs}}
            )

        elected = self._store.update(partitions, noted_election, self._context.leadership)
        for partition in unclean & elected.keys():
            log.warning("unclean_leader_elected", partition=str(partition), leader=elected[partition].leader)
        for partition, state in elected.items():
            self._take_state(partition, state)
            self._context.partition_states[partition] = PartitionState.ONLINE
            self._outbox.add_leader_and_isr(self._context.working_replicas(partition), partition, state)
        without_leader = [str(partition) for partition in partitions if partition not in elected]
        if without_leader:
            log.warning("partitions_without_leader", partitions=without_leader[:20], count=len(without_leader))
        self._counters.count(time.monotonic() - started, len(unclean & elected.keys()))
        return set(elected)

    def _initialize(self, partitions: Sequence[TopicPartition]) -> None:
        wanted = {}
        for partition in partitions:
            replicas = self._context.assignment(partition).replicas
            state = initial_state(replicas, self._context.online_replicas(partition), self._context.epoch)
            if state is None:
                log.warning("partition_has_no_live_replica", partition=str(partition), replicas=replicas)
            else:
                wanted[partition] = state
        if not wanted:
            return
        for partition, state in self._store.create(wanted).items():
            self._take_state(partition, state)
            self._context.partition_states[partition] = PartitionState.ONLINE
            self._outbox.add_leader_and_isr(state.isr, partition, state, is_new=True)

    def _elect_offline(self, partitions: Sequence[TopicPartition]) -> None:
        """Elect leaders that are in sync; others only if the topic allows it, which is read only if it matters."""
        doubtful = {partition.topic for partition in partitions if not self._has_clean_candidate(partition)}
        unclean = self._unclean_topics(doubtful) if doubtful else ()

        def election(partition: TopicPartition, state: LeaderAndIsr) -> LeaderAndIsr | None:
            replicas = self._context.assignment(partition).replicas
            online = self._context.online_replicas(partition)
            return offline_election(replicas, state, online, unclean=partition.topic in unclean)

        self.elect(partitions, election)

    def _has_clean_candidate(self, partition: TopicPartition) -> bool:
        state = self._context.leadership.get(partition)
        return state is not None and not set(state.isr).isdisjoint(self._context.online_replicas(partition))

    def _may_enter(self, partition: TopicPartition, target: PartitionState) -> bool:
        present = self._context.partition_state(partition)
        if present in PARTITION_PREVIOUS[target]:
            return True
        log.error("invalid_transition", partition=str(partition), present=present.value, target=target.value)
        return False

    def _take_state(self, partition: TopicPartition, state: LeaderAndIsr) -> None:
        self._context.leadership[partition] = state

    # Replicas

    def move_replicas(self, replicas: Iterable[Replica], target: ReplicaState) -> None:
        """Move replicas to a state, and tell the brokers what follows from it."""
        valid = [replica for replica in replicas if self._replica_may_enter(replica, target)]
        match target:
            case ReplicaState.NEW:
                self._replicas_new(valid)
            case ReplicaState.ONLINE:
                self._replicas_online(valid)
            case ReplicaState.OFFLINE:
                self._replicas_offline(valid)
            case ReplicaState.DELETION_STARTED:
                for replica in valid:
                    self._outbox.add_stop_replica(replica.broker, replica.topic_partition, delete=True)
            case ReplicaState.DELETION_SUCCESSFUL | ReplicaState.DELETION_INELIGIBLE | ReplicaState.NON_EXISTENT:
                # Only kept in the context.
                pass
        for replica in valid:
            if target is ReplicaState.NON_EXISTENT:
                self._context.replica_states.pop(replica, None)
            else:
                self._context.replica_states[replica] = target

    def _replicas_new(self, replicas: Sequence[Replica]) -> None:
        """Let a replica that joins a partition with a leader start to follow it."""
        for replica in replicas:
            state = self._context.leadership.get(replica.topic_partition)
            if state is not None and state.leader != replica.broker:
                self._outbox.add_leader_and_isr([replica.broker], replica.topic_partition, state, is_new=True)

    def _replicas_online(self, replicas: Sequence[Replica]) -> None:
        """Send the current state to a broker that came back; for a new partition, it was sent already."""
        brokers: dict[TopicPartition, list[int]] = {}
        for replica in replicas:
            if self._context.replica_state(replica) is not ReplicaState.NEW:
                brokers.setdefault(replica.topic_partition, []).append(replica.broker)
        for partition, told in brokers.items():
            state = self._context.leadership.get(partition)
            if state is not None:
                self._outbox.add_leader_and_isr(told, partition, state)

    def _replicas_offline(self, replicas: Sequence[Replica]) -> None:
        """Stop the replicas, and remove them from leadership and ISR unless their topic is being deleted."""
        by_broker: dict[int, list[TopicPartition]] = {}
        for replica in replicas:
            self._outbox.add_stop_replica(replica.broker, replica.topic_partition, delete=False)
            if replica.topic not in self._context.deleting:
                by_broker.setdefault(replica.broker, []).append(replica.topic_partition)
        for broker, partitions in by_broker.items():
            self._leave_isr(broker, [each for each in partitions if each in self._context.leadership])
            self._outbox.add_metadata([each for each in partitions if each not in self._context.leadership])

    def _leave_isr(self, broker: int, partitions: Sequence[TopicPartition]) -> None:
        left = self._store.update(partitions, lambda _, state: without_replica(state, broker), self._context.leadership)
        for partition, state in left.items():
            self._take_state(partition, state)
            if state.leader == NO_LEADER:
                self._context.partition_states[partition] = PartitionState.OFFLINE
            others = [each for each in self._context.working_replicas(partition) if each != broker]
            self._outbox.add_leader_and_isr(others, partition, state)

    def _replica_may_enter(self, replica: Replica, target: ReplicaState) -> bool:
        present = self._context.replica_state(replica)
        if present in REPLICA_PREVIOUS[target]:
            return True
        log.error("invalid_transition", replica=tuple(replica), present=present.value, target=target.value)
        return False
