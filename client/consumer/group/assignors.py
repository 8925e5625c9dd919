"""How the leader of a classic group assigns partitions to members.

Other clients may be members too, so each assignor gives the same result as Java's assignor of that name.
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
    """An assignment strategy."""

    name: ClassVar[str]
    # Whether members keep their partitions while the group rebalances.
    cooperative: ClassVar[bool] = False

    @abstractmethod
    def assign(self, partitions: PartitionCounts, members: Mapping[str, Subscription]) -> Assignments:
        """Assign each partition of the topics to one of the members that subscribe to it."""

    def user_data(self, owned: Collection[TopicPartition], generation: int) -> bytes | None:
        """Return the user data for the leader; most assignors need none."""
        return None


class RangeAssignor(Assignor):
    """Each member gets a range of partitions per topic; the first members get one more if the numbers do not divide."""

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
                # The loop ends, because some member subscribes to the topic.
                name = next(turn for turn in turns if topic in members[turn].topics)
                assigned[name].append(TopicPartition(topic, number))
        return assigned


def in_order(members: Mapping[str, Subscription]) -> list[str]:
    """Return the member ids in Java's order: static members by instance id, then the others by member id."""

    def rank(name: str) -> tuple[bool, str]:
        instance = members[name].group_instance_id
        return instance is None, name if instance is None else instance

    return sorted(members, key=rank)


def assignors_by_name(names: Iterable[str | type[Assignor]]) -> list[Assignor]:
    """Return the assignors with these names; KafkaConfigurationError for an unknown name."""
    from ottla.client.consumer.group.sticky_assignor import CooperativeStickyAssignor, StickyAssignor

    known: dict[str, type[Assignor]] = {
        assignor.name: assignor
        for assignor in (RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor)
    }
    chosen = []
    for name in names:
        assignor = known.get(name) if isinstance(name, str) else name
        if assignor is None:
            raise KafkaConfigurationError(f"partition_assignment_strategy takes {', '.join(known)}, not {name!r}")
        chosen.append(assignor())
    if not chosen:
        raise KafkaConfigurationError("partition_assignment_strategy is empty")
    return chosen
