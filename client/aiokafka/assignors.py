"""aiokafka's assignors: three that stand for ours, and the base class of those that programs bring along."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from ottla.client.aiokafka.structs import TopicPartition
from ottla.client.consumer.group.assignors import (
    Assignments,
    Assignor,
    PartitionCounts,
    RangeAssignor,
    RoundRobinAssignor,
)
from ottla.client.consumer.group.consumer_protocol import Subscription
from ottla.client.consumer.group.sticky_assignor import StickyAssignor
from ottla.client.net.metadata import by_topic
from ottla.protocol import identifiers

__all__ = [
    "AbstractPartitionAssignor",
    "ConsumerProtocolMemberAssignment",
    "ConsumerProtocolMemberMetadata",
    "RangePartitionAssignor",
    "RoundRobinPartitionAssignor",
    "StickyPartitionAssignor",
]


@dataclass
class ConsumerProtocolMemberMetadata:
    """What a member subscribes to."""

    version: int
    subscription: list[str]
    user_data: bytes


class _TopicAssignment(NamedTuple):
    topic: str
    partitions: list[int]


@dataclass
class ConsumerProtocolMemberAssignment:
    """What a member gets: tuples of a topic and its partitions."""

    version: int
    assignment: list[Any] = field(default_factory=list)
    user_data: bytes = b""

    def partitions(self) -> list[TopicPartition]:
        """Return all partitions."""
        return [TopicPartition(topic, number) for topic, numbers in self.assignment for number in numbers]


class AbstractPartitionAssignor(ABC):
    """How the leader of a group assigns partitions to its members."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name that all members know it by."""

    @classmethod
    @abstractmethod
    def assign(cls, cluster: Any, members: Mapping[str, Any]) -> dict[str, Any]:
        """Return the assignment of each member; `cluster.partitions_for_topic` returns the partitions of a topic."""

    @classmethod
    @abstractmethod
    def metadata(cls, topics: Iterable[str]) -> Any:
        """Return what this member sends to the leader."""

    @classmethod
    @abstractmethod
    def on_assignment(cls, assignment: Any) -> None:
        """Called with the assignment of this member."""


class _Ours(AbstractPartitionAssignor):
    """One of our assignors."""

    ours: ClassVar[type[Assignor]]

    @classmethod
    def assign(cls, cluster: Any, members: Mapping[str, Any]) -> dict[str, Any]:
        topics = {topic for member in members.values() for topic in member.subscription}
        counts = {topic: len(cluster.partitions_for_topic(topic) or ()) for topic in topics}
        subscriptions = {
            name: Subscription(member.subscription, user_data=member.user_data or None)
            for name, member in members.items()
        }
        assigned = cls.ours().assign(counts, subscriptions)
        return {name: _assignment(partitions) for name, partitions in assigned.items()}

    @classmethod
    def metadata(cls, topics: Iterable[str]) -> Any:
        return ConsumerProtocolMemberMetadata(0, list(topics), b"")

    @classmethod
    def on_assignment(cls, assignment: Any) -> None:
        """Nothing to do."""


class RangePartitionAssignor(_Ours):
    name = "range"
    ours = RangeAssignor


class RoundRobinPartitionAssignor(_Ours):
    name = "roundrobin"
    ours = RoundRobinAssignor


class StickyPartitionAssignor(_Ours):
    name = "sticky"
    ours = StickyAssignor


class _Cluster:
    """What an assignor may ask of the cluster."""

    def __init__(self, counts: PartitionCounts) -> None:
        self._counts = counts

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        count = self._counts.get(topic)
        return None if not count else set(range(count))


def our_assignor(theirs: Any) -> type[Assignor]:
    """Return an assignor for our consumer that does as aiokafka's does."""
    if (
        isinstance(theirs, type)
        and issubclass(theirs, _Ours)
        and inspect.getattr_static(theirs, "assign") is vars(_Ours)["assign"]
    ):
        return theirs.ours

    class Adapted(Assignor):
        name = theirs.name

        def assign(self, partitions: PartitionCounts, members: Mapping[str, Subscription]) -> Assignments:
            asked = {
                name: ConsumerProtocolMemberMetadata(0, list(member.topics), member.user_data or b"")
                for name, member in members.items()
            }
            answer = theirs.assign(_Cluster(partitions), asked)
            return {
                name: [identifiers.TopicPartition(*one) for one in answer[name].partitions()] if name in answer else []
                for name in members
            }

        def user_data(self, owned: Any, generation: int) -> bytes | None:
            return bytes(theirs.metadata(sorted({partition.topic for partition in owned})).user_data)

    return Adapted


def tell_assignment(assignors: Iterable[Any], partitions: Iterable[TopicPartition]) -> None:
    """Call the assignors with the assignment of this member."""
    for assignor in assignors:
        assignor.on_assignment(_assignment(partitions))


def _assignment(partitions: Iterable[Any]) -> ConsumerProtocolMemberAssignment:
    rows = by_topic(identifiers.TopicPartition(*partition) for partition in sorted(partitions))
    return ConsumerProtocolMemberAssignment(0, [_TopicAssignment(topic, numbers) for topic, numbers in rows.items()])
