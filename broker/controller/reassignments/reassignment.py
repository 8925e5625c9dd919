"""Moving partitions to other brokers.

    A. The target is written into the topic's node, beside the current replicas. All replicas are told, in a new leader
       epoch, and the added ones start to copy.
    B. When the whole target is in sync, it alone makes up the partition: one of the target leads, and the other
       replicas leave the ISR, are stopped and deleted. When their brokers have done that, or are dead, the topic's node
       is updated too.

A target may be replaced during the move; cancelling means moving back to the origin. Replicas that only the earlier
target wanted are removed at once, unless no other replica could lead.

Until the last write, the topic's node names every replica that may have a log. So when a controller dies, the next one
finds in the node what is left to do, and can repeat each step. A replica is deleted only while the ISR without it has a
live member, and a replica of the origin only when the ISR has the whole target.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import structlog

from ottla.broker.cluster.zookeeper import Watch, ZooKeeper
from ottla.broker.controller.context import ControllerContext, Replica, ReplicaAssignment
from ottla.broker.controller.election import Fence
from ottla.broker.controller.messages.outbox import Outbox
from ottla.broker.controller.partition_states import LeaderAndIsr, PartitionState, ReplicaState
from ottla.broker.controller.reassignments.reassignment_nodes import AssignmentNodes, LegacyNode
from ottla.broker.controller.reassignments.reassignment_plan import (
    check_target,
    elected,
    extras_of,
    is_reassigned,
    origin_of,
    reassigned,
    target_of,
    with_extras,
    without,
)
from ottla.broker.controller.topic_deletion import TopicDeletion
from ottla.broker.controller.transitions import Election, Transitions
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition

log = structlog.get_logger(__name__)


class Reassignments:
    """The partitions that are being reassigned, in one term."""

    def __init__(
        self,
        context: ControllerContext,
        zookeeper: ZooKeeper,
        fence: Fence,
        outbox: Outbox,
        transitions: Transitions,
        deletion: TopicDeletion,
        notice: Callable[[Callable[[], None]], Watch],
    ) -> None:
        """`notice` returns a watch that runs a handler as an event of the term."""
        self._context = context
        self._nodes = AssignmentNodes(zookeeper, fence)
        self._legacy = LegacyNode(zookeeper, fence)
        self._outbox = outbox
        self._transitions = transitions
        self._deletion = deletion
        self._notice = notice
        # Brokers that were told to delete a replica that has left the assignment, and have not answered yet. The
        # topic's node still names them.
        self._doomed: dict[TopicPartition, set[int]] = {}
        # Called when moves are done, and when brokers join that moves may wait for.
        self.on_progress: Callable[[], None] = lambda: None

    # Requests

    def check(self, partition: TopicPartition, target: Sequence[int] | None) -> None:
        """Raise KafkaError if a partition cannot move to a target."""
        self._wanted(partition, target)

    def alter(
        self, requested: Mapping[TopicPartition, Sequence[int] | None]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Start to move partitions to a target; None cancels. Returns what was refused, after phase A is done."""
        results: dict[TopicPartition, KafkaError | None] = {}
        wanted: dict[TopicPartition, ReplicaAssignment] = {}
        for partition, target in requested.items():
            try:
                wanted[partition] = self._wanted(partition, target)
            except KafkaError as error:
                results[partition] = error
        # The last request counts. It is written first, or the next controller would return to the older target.
        self._legacy.remove(lambda partition, _: partition in wanted)
        return results | self._start(wanted)

    def listing(self, chosen: Collection[TopicPartition] | None = None) -> dict[TopicPartition, ReplicaAssignment]:
        """Return those of some partitions, or of all, that are being reassigned."""
        partitions = sorted(self._context.reassigning)
        return {each: self._recorded(each) for each in partitions if chosen is None or each in chosen}

    def is_reassigning(self, partition: TopicPartition) -> bool:
        """Return whether a partition is being reassigned."""
        return partition in self._context.reassigning

    # Events

    def resume(self) -> None:
        """Continue the reassignments of an earlier controller."""
        self._context.reassigning = {
            partition for partition in self._context.partitions() if is_reassigned(self._context.assignment(partition))
        }
        found = set(self._context.reassigning)
        self._advance(sorted(found - self._take_legacy()))

    def legacy_changed(self) -> None:
        """Handle that the node of the old tools was created, changed or deleted."""
        self._take_legacy()

    def isr_changed(self, partitions: Iterable[TopicPartition]) -> None:
        """Handle that replicas have caught up or fallen behind."""
        self._complete([each for each in partitions if self.is_reassigning(each) and self._is_ready(each)])

    def brokers_joined(self, brokers: Collection[int]) -> None:
        """Continue what waited for brokers, and send them again what they may have missed."""
        for partition, doomed in self._doomed.items():
            for broker in sorted(doomed.intersection(brokers)):
                self._outbox.add_stop_replica(broker, partition, delete=True)
        self._advance(
            [
                partition
                for partition in sorted(self._context.reassigning)
                if not set(self._context.assignment(partition).replicas).isdisjoint(brokers)
            ]
        )
        self.on_progress()

    def brokers_left(self, brokers: Collection[int]) -> None:
        """Stop waiting for deletions by brokers that are gone."""
        self._settle([partition for partition, doomed in self._doomed.items() if not doomed.isdisjoint(brokers)])

    def replicas_stopped(self, replicas: Iterable[Replica]) -> None:
        """Handle the answers of brokers to deletions; a failed one leaves a log that nobody knows of."""
        answered = [each for each in replicas if each.broker in self._doomed.get(each.topic_partition, ())]
        self._forget_replicas(answered)
        self._settle(sorted({replica.topic_partition for replica in answered}))

    # Phase A

    def _wanted(self, partition: TopicPartition, target: Sequence[int] | None) -> ReplicaAssignment:
        """Return the assignment with which a partition starts to move, or raise the reason why it cannot."""
        present = self._context.assignment(partition)
        if target is None:
            if not is_reassigned(present):
                raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
            target = origin_of(present)
        else:
            check_target(present, target, self._context.brokers)
        if not present.replicas or partition.topic in self._context.deleting:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(partition))
        return reassigned(present, target)

    def _start(self, wanted: Mapping[TopicPartition, ReplicaAssignment]) -> dict[TopicPartition, KafkaError | None]:
        changed = {each: wanted[each] for each in wanted if wanted[each] != self._context.assignment(each)}
        written = self._nodes.write({each: self._recorded(each, changed[each]) for each in changed})
        for partition in written:
            assignment = changed[partition]
            log.info("reassignment_started", partition=str(partition), **assignment._asdict())
            wanted_again = self._doomed.get(partition, set()).intersection(assignment.replicas)
            self._forget_replicas(Replica(*partition, broker) for broker in wanted_again)
            self._assign(partition, assignment)
        moved = {each for each in written if is_reassigned(changed[each])}
        self._context.reassigning |= moved
        # If only the order is new, there is nothing to wait for.
        self._announce(sorted(written - moved))
        self._advance(sorted(moved))
        return {
            partition: KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(partition))
            if partition in changed and partition not in written
            else None
            for partition in wanted
        }

    def _advance(self, partitions: Sequence[TopicPartition]) -> None:
        """Take partitions as far as possible."""
        self._begin([partition for partition in partitions if not self._is_ready(partition)])
        self._complete([partition for partition in partitions if self._is_ready(partition)])

    def _begin(self, partitions: Sequence[TopicPartition]) -> None:
        """Tell all replicas their roles, and let the added ones start to copy."""
        needless = {
            partition: without(assignment, extras)
            for partition in partitions
            if (extras := extras_of(assignment := self._context.assignment(partition)))
        }
        shrunk = self._shrink(needless, self._election)
        self._announce([partition for partition in partitions if partition not in shrunk])
        added = [Replica(*each, broker) for each in partitions for broker in self._context.assignment(each).adding]
        self._transitions.move_replicas(self._in_state(added, ReplicaState.NON_EXISTENT), ReplicaState.NEW)

    def _announce(self, partitions: Sequence[TopicPartition]) -> None:
        new = [each for each in partitions if self._context.partition_state(each) is PartitionState.NEW]
        self._transitions.elect([each for each in partitions if each not in new], self._election)
        self._transitions.move_partitions(new, PartitionState.ONLINE)

    # Phase B

    def _is_ready(self, partition: TopicPartition) -> bool:
        state = self._context.leadership.get(partition)
        assignment = self._context.assignment(partition)
        return state is not None and is_reassigned(assignment) and set(target_of(assignment)) <= set(state.isr)

    def _complete(self, partitions: Sequence[TopicPartition]) -> None:
        """Give partitions their target alone."""
        assignments = {partition: self._context.assignment(partition) for partition in partitions}
        added = [Replica(*each, broker) for each in partitions for broker in assignments[each].adding]
        self._transitions.move_replicas(self._in_state(added, ReplicaState.NEW), ReplicaState.ONLINE)
        self._shrink(
            {each: ReplicaAssignment(target_of(assignments[each])) for each in partitions}, self._last_election
        )

    def _shrink(self, smaller: Mapping[TopicPartition, ReplicaAssignment], election: Election) -> set[TopicPartition]:
        """Remove replicas from leadership, ISR and assignment, and delete them; return the partitions that others could
        lead.
        """
        before = {partition: self._context.assignment(partition) for partition in smaller}
        for partition, assignment in smaller.items():
            self._assign(partition, assignment)
        shrunk = self._transitions.elect(list(smaller), election)
        for partition in before.keys() - shrunk:
            self._assign(partition, before[partition])
        removed = [
            Replica(*partition, broker)
            for partition in sorted(shrunk)
            for broker in before[partition].replicas
            if broker not in smaller[partition].replicas
        ]
        self._transitions.move_replicas(removed, ReplicaState.OFFLINE)
        self._transitions.move_replicas(removed, ReplicaState.DELETION_STARTED)
        for replica in removed:
            self._doomed.setdefault(replica.topic_partition, set()).add(replica.broker)
        self._settle(sorted(shrunk))
        return shrunk

    def _settle(self, partitions: Sequence[TopicPartition]) -> None:
        """Update the topics' nodes when all brokers have deleted their replicas or are gone."""
        doomed = [Replica(*each, broker) for each in partitions for broker in self._doomed.get(each, ())]
        self._forget_replicas(replica for replica in doomed if replica.broker not in self._context.brokers)
        settled = [each for each in partitions if each not in self._doomed and each.topic in self._context.assignments]
        written = self._nodes.write({each: self._context.assignment(each) for each in settled})
        done = {each for each in written if not is_reassigned(self._context.assignment(each))}
        if not done:
            return
        for partition in sorted(done):
            log.info(
                "reassignment_done", partition=str(partition), replicas=self._context.assignment(partition).replicas
            )
        self._legacy.remove(
            lambda partition, target: partition in done and target == self._context.assignment(partition).replicas
        )
        self._context.reassigning -= done
        self._outbox.add_metadata(done)
        self._deletion.resume()
        self.on_progress()

    def _election(self, partition: TopicPartition, state: LeaderAndIsr) -> LeaderAndIsr | None:
        return elected(self._context.assignment(partition).replicas, state, self._context.online_replicas(partition))

    def _last_election(self, partition: TopicPartition, state: LeaderAndIsr) -> LeaderAndIsr | None:
        is_in_sync = set(self._context.assignment(partition).replicas) <= set(state.isr)
        return self._election(partition, state) if is_in_sync else None

    # Requests of the old tools

    def _take_legacy(self) -> set[TopicPartition]:
        """Start the moves in the node, and remove finished and refused ones from it; return those started."""
        asked = self._legacy.read(self._notice(self.legacy_changed))
        wanted: dict[TopicPartition, ReplicaAssignment] = {}
        settled: set[TopicPartition] = set()
        for partition, target in asked.items():
            present = self._context.assignment(partition)
            if target and target == target_of(present):
                if not self.is_reassigning(partition):
                    settled.add(partition)
                continue
            try:
                wanted[partition] = self._wanted(partition, target)
            except KafkaError as error:
                log.warning("reassignment_refused", partition=str(partition), target=target, reason=str(error))
                settled.add(partition)
        results = self._start(wanted)
        settled |= {partition for partition in wanted if not self.is_reassigning(partition)}
        self._legacy.remove(lambda partition, _: partition in settled)
        return {partition for partition, error in results.items() if error is None}

    # State

    def _recorded(self, partition: TopicPartition, assignment: ReplicaAssignment | None = None) -> ReplicaAssignment:
        """Return an assignment as in the topic's node, with the replicas that are still to be deleted."""
        known = self._context.assignment(partition) if assignment is None else assignment
        return with_extras(known, sorted(self._doomed.get(partition, set()).difference(known.replicas)))

    def _assign(self, partition: TopicPartition, assignment: ReplicaAssignment) -> None:
        self._context.assignments[partition.topic][partition.partition] = assignment

    def _forget_replicas(self, replicas: Iterable[Replica]) -> None:
        gone = list(replicas)
        self._transitions.move_replicas(gone, ReplicaState.DELETION_SUCCESSFUL)
        self._transitions.move_replicas(gone, ReplicaState.NON_EXISTENT)
        for replica in gone:
            doomed = self._doomed[replica.topic_partition]
            doomed.discard(replica.broker)
            if not doomed:
                del self._doomed[replica.topic_partition]

    def _in_state(self, replicas: Iterable[Replica], state: ReplicaState) -> list[Replica]:
        return [replica for replica in replicas if self._context.replica_state(replica) is state]
