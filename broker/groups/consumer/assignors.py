"""The server-side assignors of the consumer protocol, as pure functions.

An assignor takes the members, with their subscriptions and previous assignments, and the number of partitions of each
topic. It returns the partitions of each member. Each partition of a subscribed topic goes to exactly one reader.

    uniform   spreads partitions as evenly as the subscriptions allow, and moves as few as possible
    range     gives each reader a contiguous range of each topic, in the order of member names. Topics with the same
              readers and the same number of partitions are split in the same way
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from msgspec import Struct


class TopicIdPartition(NamedTuple):
    """A partition, identified by topic id: a topic that is deleted and created again gets another id."""

    topic_id: bytes
    partition: int


PartitionSet = frozenset[TopicIdPartition]
NO_PARTITIONS: Final[PartitionSet] = frozenset()


class Reader(Struct, frozen=True):
    """A member, as input of an assignor."""

    # The ids of the subscribed topics.
    topics: frozenset[bytes]
    # The previous target assignment.
    had: PartitionSet = NO_PARTITIONS
    # A static member keeps its place in the order when it comes back with another member id.
    instance_id: str | None = None


Assignor = Callable[[Mapping[str, Reader], Mapping[bytes, int]], dict[str, PartitionSet]]


def uniform(readers: Mapping[str, Reader], topics: Mapping[bytes, int]) -> dict[str, PartitionSet]:
    """Assign partitions evenly, and move as few as possible."""
    subscriptions = {reader.topics for reader in readers.values()}
    if len(subscriptions) == 1:
        return _uniform_for_equal_readers(readers, topics, *subscriptions)
    return _uniform_for_different_readers(readers, topics)


def range_(readers: Mapping[str, Reader], topics: Mapping[bytes, int]) -> dict[str, PartitionSet]:
    """Assign a contiguous range of each topic to each of its readers."""
    assigned: dict[str, set[TopicIdPartition]] = {member_id: set() for member_id in readers}
    ranked = sorted(readers, key=lambda member_id: (readers[member_id].instance_id or member_id, member_id))
    for topic_id, count in topics.items():
        subscribed = [member_id for member_id in ranked if topic_id in readers[member_id].topics]
        start = 0
        for rank, member_id in enumerate(subscribed):
            size = count // len(subscribed) + (rank < count % len(subscribed))
            assigned[member_id].update(TopicIdPartition(topic_id, index) for index in range(start, start + size))
            start += size
    return _frozen(assigned)


ASSIGNORS: Final[dict[str, Assignor]] = {"uniform": uniform, "range": range_}


def _uniform_for_equal_readers(
    readers: Mapping[str, Reader], topics: Mapping[bytes, int], subscribed: frozenset[bytes]
) -> dict[str, PartitionSet]:
    """Assign to readers of the same topics: each gets the quota, and the remainder goes to some of them, one each.

    Readers that had more than the quota are the first to get one of the remainder, so that fewer partitions move.
    """
    unassigned = dict.fromkeys(_partitions_of(subscribed, topics))
    quota, extra = divmod(len(unassigned), len(readers))
    had = _valid(readers, topics)
    assigned: dict[str, set[TopicIdPartition]] = {}
    for member_id in sorted(had, key=lambda member_id: (-len(had[member_id]), member_id)):
        room = quota
        if extra and len(had[member_id]) > quota:
            room, extra = quota + 1, extra - 1
        kept = sorted(had[member_id])[:room]
        for partition in kept:
            del unassigned[partition]
        assigned[member_id] = set(kept)
    # Hand them out in turns, so that the partitions of each topic are spread over the readers, too.
    below_quota = deque(sorted(member_id for member_id in assigned if len(assigned[member_id]) < quota))
    at_most_quota = deque(sorted(member_id for member_id in assigned if len(assigned[member_id]) <= quota))
    for partition in unassigned:
        if below_quota:
            member_id = below_quota.popleft()
            assigned[member_id].add(partition)
            if len(assigned[member_id]) < quota:
                below_quota.append(member_id)
        else:
            assigned[at_most_quota.popleft()].add(partition)
    return _frozen(assigned)


def _uniform_for_different_readers(
    readers: Mapping[str, Reader], topics: Mapping[bytes, int]
) -> dict[str, PartitionSet]:
    """Give free partitions to the reader with the fewest, topics with few readers first. Then balance each topic."""
    assigned = {member_id: set(had) for member_id, had in _valid(readers, topics).items()}
    readers_of: dict[bytes, list[str]] = {}
    for member_id in sorted(readers):
        for topic_id in readers[member_id].topics & topics.keys():
            readers_of.setdefault(topic_id, []).append(member_id)
    taken = set().union(*assigned.values())
    by_rarity = sorted(readers_of, key=lambda topic_id: (len(readers_of[topic_id]), topic_id))
    for topic_id in by_rarity:
        for partition in _partitions_of([topic_id], topics):
            if partition not in taken:
                assigned[min(readers_of[topic_id], key=lambda member_id: len(assigned[member_id]))].add(partition)
    # This ends, because each move brings the sizes of two assignments closer together.
    is_moving = True
    while is_moving:
        is_moving = False
        for topic_id in by_rarity:
            is_moving |= _even_out(topic_id, readers_of[topic_id], assigned)
    return _frozen(assigned)


def _even_out(topic_id: bytes, subscribed: list[str], assigned: dict[str, set[TopicIdPartition]]) -> bool:
    """Move partitions of a topic from the reader with the most to the one with the fewest, while they differ by 2."""
    owned = {
        member_id: sorted(each for each in assigned[member_id] if each.topic_id == topic_id) for member_id in subscribed
    }
    has_moved = False
    while True:
        givers = [member_id for member_id in subscribed if owned[member_id]]
        if not givers:
            return has_moved
        giver = max(givers, key=lambda member_id: len(assigned[member_id]))
        taker = min(subscribed, key=lambda member_id: len(assigned[member_id]))
        if len(assigned[giver]) - len(assigned[taker]) < 2:
            return has_moved
        partition = owned[giver].pop()
        assigned[giver].remove(partition)
        assigned[taker].add(partition)
        has_moved = True


def _valid(readers: Mapping[str, Reader], topics: Mapping[bytes, int]) -> dict[str, PartitionSet]:
    """Return the partitions that members may keep: existing, still subscribed, and not kept by another member."""
    taken: set[TopicIdPartition] = set()
    valid: dict[str, PartitionSet] = {}
    for member_id in sorted(readers):
        reader = readers[member_id]
        valid[member_id] = frozenset(
            each
            for each in reader.had
            if each.topic_id in reader.topics and each.partition < topics.get(each.topic_id, 0) and each not in taken
        )
        taken |= valid[member_id]
    return valid


def _partitions_of(topic_ids: Iterable[bytes], topics: Mapping[bytes, int]) -> list[TopicIdPartition]:
    return [
        TopicIdPartition(topic_id, index) for topic_id in sorted(topic_ids) for index in range(topics.get(topic_id, 0))
    ]


def _frozen(assigned: Mapping[str, set[TopicIdPartition]]) -> dict[str, PartitionSet]:
    return {member_id: frozenset(partitions) for member_id, partitions in assigned.items()}
