"""How the leader of a classic group shares out its partitions.

Members of other clients take part, so each assignor gives what Java's of the same name gives for the same members.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from itertools import cycle
from typing import ClassVar

from ottla.client.consumer.group.consumer_protocol import Subscription
from ottla.client.errors import KafkaConfigurationError
from ottla.protocol.identifiers import TopicPartition

# The partitions of each member, by member id; and the number of partitions of each topic.
Assignments = dict[str, list[TopicPartition]]
PartitionCounts = Mapping[str, int]


class Assignor(ABC):
    """A way to share out partitions."""

    name: ClassVar[str]
    # Whether members keep what they have while the group rebalances.
    cooperative: ClassVar[bool] = False

    @abstractmethod
    def assign(self, partitions: PartitionCounts, members: Mapping[str, Subscription]) -> Assignments:
        """Give each partition of the topics to one of the members that subscribe to it."""

    def user_data(self, owned: Collection[TopicPartition], generation: int) -> bytes | None:
        """Return what else the leader should know; most need nothing."""
        return None


class RangeAssignor(Assignor):
    """For each topic a run of partitions to each member; the first members get one more where it does not divide."""

    name = "range"

    def assign(self, partitions: PartitionCounts, members: Mapping[str, Subscription]) -> Assignments:
        assigned: Assignments = {member: [] for member in members}
        for topic in sorted({topic for member in members.values() for topic in member.topics}):
            takers = in_order({name: member for name, member in members.items() if topic in member.topics})
            share, extra = divmod(partitions.get(topic, 0), len(takers))
            begin = 0
            for rank, name in enumerate(takers):
                end = begin + share + (rank < extra)
                assigned[name] += [TopicPartition(topic, number) for number in range(begin, end)]
                begin = end
        return assigned


class RoundRobinAssignor(Assignor):
    """All partitions of all topics in order, one to each member in turn."""

    name = "roundrobin"

    def assign(self, partitions: PartitionCounts, members: Mapping[str, Subscription]) -> Assignments:
        assigned: Assignments = {member: [] for member in members}
        turns = cycle(in_order(members))
        for topic in sorted({topic for member in members.values() for topic in member.topics}):
            for number in range(partitions.get(topic, 0)):
                # Ends, as some member subscribes to the topic.
                name = next(turn for turn in turns if topic in members[turn].topics)
                assigned[name].append(TopicPartition(topic, number))
        return assigned


def in_order(members: Mapping[str, Subscription]) -> list[str]:
    """Return the member ids as Java orders them: static members by their names, then the others by their ids."""

    def rank(name: str) -> tuple[bool, str]:
        instance = members[name].group_instance_id
        return instance is None, name if instance is None else instance

    return sorted(members, key=rank)


def assignors_by_name(names: Iterable[str | type[Assignor]]) -> list[Assignor]:
    """Return the assignors of these names; KafkaConfigurationError for one that there is not."""
    from ottla.client.consumer.group.sticky_assignor import CooperativeStickyAssignor, StickyAssignor

    known: dict[str, type[Assignor]] = {
        assignor.name: assignor
        for assignor in (RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor)
    }
    chosen = []
    for name in names:
        assignor = known.get(name) if isinstance(name, str) else name
        if assignor is None:
            raise KafkaConfigurationError(f"partition_assignment_strategy is of {', '.join(known)}, not {name!r}")
        chosen.append(assignor())
    if not chosen:
        raise KafkaConfigurationError("partition_assignment_strategy is empty")
    return chosen
