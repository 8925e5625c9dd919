"""How the leader of a group shares out its partitions, byte for byte in Kafka's consumer protocol.

    subscription: int16 version, topics, user data, owned partitions (1+), generation (2+), rack (3+)
    assignment:   int16 version, partitions by topic, user data

Members of other clients take part, so each assignor gives what Java's of the same name gives for the same members.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import cycle
from struct import Struct
from typing import Any, ClassVar, Final

from ottla.client.errors import KafkaConfigurationError
from ottla.protocol.codec import decode_from, encode
from ottla.protocol.errors import DecodeError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)

_VERSION: Final = Struct(">h")
_SUBSCRIPTION_VERSION_MAX: Final = 3
_ASSIGNMENT_VERSION: Final = 0
_ASSIGNMENT_VERSION_MAX: Final = 3
NO_GENERATION: Final = -1

# The partitions of each member, by member id; and the number of partitions of each topic.
Assignments = dict[str, list[TopicPartition]]
PartitionCounts = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member tells the leader."""

    topics: Collection[str]
    owned: Collection[TopicPartition] = ()
    generation: int = NO_GENERATION
    user_data: bytes | None = None
    rack_id: str | None = None
    group_instance_id: str | None = None


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


# Bytes.


def encode_subscription(subscription: Subscription, version: int = _SUBSCRIPTION_VERSION_MAX) -> bytes:
    """Write what a member tells."""
    owned = [
        ConsumerProtocolSubscriptionTopicPartition(topic=topic, partitions=numbers)
        for topic, numbers in by_topic(subscription.owned).items()
    ]
    body = ConsumerProtocolSubscription(
        topics=sorted(subscription.topics),
        user_data=subscription.user_data,
        owned_partitions=owned,
        generation_id=subscription.generation,
        rack_id=subscription.rack_id,
    )
    return _VERSION.pack(version) + encode(body, version)


def decode_subscription(data: bytes, group_instance_id: str | None = None) -> Subscription:
    """Read what a member tells; bytes behind it, of a version of the future, are passed over."""
    body = _decode(ConsumerProtocolSubscription, data, _SUBSCRIPTION_VERSION_MAX)
    owned = [TopicPartition(row.topic, number) for row in body.owned_partitions for number in row.partitions]
    return Subscription(body.topics, owned, body.generation_id, body.user_data, body.rack_id, group_instance_id)


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """Write what a member gets."""
    rows = [
        ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=numbers)
        for topic, numbers in by_topic(partitions).items()
    ]
    body = ConsumerProtocolAssignment(assigned_partitions=rows)
    return _VERSION.pack(_ASSIGNMENT_VERSION) + encode(body, _ASSIGNMENT_VERSION)


def decode_assignment(data: bytes) -> set[TopicPartition]:
    """Read what we got; nothing at all is no partition."""
    if not data:
        return set()
    body = _decode(ConsumerProtocolAssignment, data, _ASSIGNMENT_VERSION_MAX)
    return {TopicPartition(row.topic, number) for row in body.assigned_partitions for number in row.partitions}


def _decode(layout: type[Any], data: bytes, version_max: int) -> Any:
    if len(data) < _VERSION.size:
        raise DecodeError(f"{len(data)} bytes are too few for {layout.__name__}")
    (version,) = _VERSION.unpack_from(data)
    if version < 0:
        raise DecodeError(f"version {version} of {layout.__name__}")
    return decode_from(layout, min(version, version_max), data, _VERSION.size)[0]


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the numbers of the partitions, in order, for each topic in order."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for topic, number in sorted(partitions):
        numbers[topic].append(number)
    return dict(numbers)
