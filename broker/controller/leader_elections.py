"""Elections that somebody asks for, and those that balance leaders; all others follow from events.

preferred   the first of a partition's replicas leads, if it is in sync
unclean     if the partition has no leader, any live replica leads, and records that it lacks are lost
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import IntEnum
from typing import NamedTuple

import structlog

from ottla.broker.cluster import znodes
from ottla.broker.controller.context import ControllerContext, Replica
from ottla.broker.controller.office import Office
from ottla.broker.controller.partition_states import LeaderAndIsr, offline_election, preferred_election
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import NO_LEADER, TopicPartition

log = structlog.get_logger(__name__)


class ElectionType(IntEnum):
    """The types of elections, by their numbers on the wire."""

    PREFERRED = 0
    UNCLEAN = 1


class ElectionResult(NamedTuple):
    """The result of an election: the leader, or why there is no new one."""

    code: ErrorCode
    leader: int = NO_LEADER


class LeaderElections:
    """Elections of preferred and unclean leaders in one term."""

    def __init__(self, office: Office) -> None:
        self._office = office
        self._context = office.context

    def begin(self, delay_seconds: float) -> None:
        """Start to serve the elections of old tools, and to balance leaders at intervals."""
        self._requests_changed()
        self._office.post_after(delay_seconds, self._check_balance)

    def elect(
        self, election_type: ElectionType, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ElectionResult]:
        """Elect leaders; return the result for each partition."""
        results: dict[TopicPartition, ElectionResult] = {}
        electable: list[TopicPartition] = []
        for partition in partitions:
            if not self._context.assignment(partition).replicas:
                results[partition] = ElectionResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            elif partition.topic in self._context.deleting:
                results[partition] = ElectionResult(ErrorCode.INVALID_TOPIC_EXCEPTION)
            elif not self._is_needed(election_type, partition):
                results[partition] = ElectionResult(ErrorCode.ELECTION_NOT_NEEDED)
            else:
                electable.append(partition)
        is_preferred = election_type is ElectionType.PREFERRED
        elected = self._office.transitions.elect(electable, self._preferred if is_preferred else self._unclean)
        failure = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE if is_preferred else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        for partition in electable:
            if partition in elected:
                results[partition] = ElectionResult(ErrorCode.NONE, self._context.leadership[partition].leader)
            else:
                results[partition] = ElectionResult(failure)
        return results

    def rebalance(self) -> set[TopicPartition]:
        """Give partitions back to their preferred leaders if too many have others; return these partitions."""
        percentage = self._office.config().leader_imbalance_per_broker_percentage
        partitions = imbalanced_partitions(self._context, percentage)
        if partitions:
            log.info("leaders_rebalanced", count=len(partitions))
        return self._office.transitions.elect(partitions, self._preferred)

    def _check_balance(self) -> None:
        config = self._office.config()
        self._office.post_after(config.leader_imbalance_check_interval_seconds, self._check_balance)
        if config.auto_leader_rebalance_enable:
            self.rebalance()

    def _requests_changed(self) -> None:
        """Do the preferred elections that a tool has written into a node; delete the node to say that they are done."""
        path = znodes.PREFERRED_ELECTION
        zookeeper = self._office.zookeeper
        node = (
            zookeeper.read_or_none(path)
            if zookeeper.exists(path, self._office.notice(self._requests_changed))
            else None
        )
        if node is None:
            return
        try:
            asked = znodes.PreferredElectionNode.decode(node.data, path).partitions
            self.elect(
                ElectionType.PREFERRED, dict.fromkeys(TopicPartition(each.topic, each.partition) for each in asked)
            )
        except znodes.MalformedNodeError as error:
            log.error("preferred_election_malformed", reason=str(error))
        self._office.fence.delete([path])

    def _is_needed(self, election_type: ElectionType, partition: TopicPartition) -> bool:
        state = self._context.leadership.get(partition)
        if state is None:
            return True
        if election_type is ElectionType.PREFERRED:
            return state.leader != self._context.assignment(partition).replicas[0]
        return not self._context.is_online(Replica(partition.topic, partition.partition, state.leader))

    def _preferred(self, partition: TopicPartition, state: LeaderAndIsr) -> LeaderAndIsr | None:
        replicas = self._context.assignment(partition).replicas
        return preferred_election(replicas, state, self._context.online_replicas(partition))

    def _unclean(self, partition: TopicPartition, state: LeaderAndIsr) -> LeaderAndIsr | None:
        replicas = self._context.assignment(partition).replicas
        return offline_election(replicas, state, self._context.online_replicas(partition), unclean=True)


def imbalanced_partitions(context: ControllerContext, percentage: int) -> list[TopicPartition]:
    """Return the partitions to give back to brokers that lead too few of their preferred partitions.

    Too few means that other brokers lead more than `percentage` of them. Partitions that are being moved, or whose
    preferred replica could not lead, are left out.
    """
    preferred: dict[int, list[TopicPartition]] = {}
    for partition in context.partitions():
        replicas = context.assignment(partition).replicas
        if replicas and partition in context.leadership and partition.topic not in context.deleting:
            preferred.setdefault(replicas[0], []).append(partition)
    return [
        partition
        for broker, partitions in preferred.items()
        if is_imbalanced(len(others := led_by_others(context, broker, partitions)), len(partitions), percentage)
        for partition in others
        if _can_lead(context, broker, partition)
    ]


def led_by_others(
    context: ControllerContext, broker: int, partitions: Iterable[TopicPartition]
) -> list[TopicPartition]:
    """Return the partitions that a broker does not lead."""
    return [partition for partition in partitions if context.leadership[partition].leader != broker]


def is_imbalanced(led_by_others: int, preferred: int, percentage: int) -> bool:
    """Return whether other brokers lead more than a percentage of the preferred partitions."""
    return led_by_others * 100 > preferred * percentage


def _can_lead(context: ControllerContext, broker: int, partition: TopicPartition) -> bool:
    isr: Collection[int] = context.leadership[partition].isr
    is_moving = partition in context.reassigning
    return not is_moving and broker in isr and context.is_online(Replica(partition.topic, partition.partition, broker))
