"""Assignors that move as few partitions as the balance allows.

The leader is free to choose among balanced assignments. Members of other clients only need to agree on the claims:
`sticky` keeps them in the user data, `cooperative-sticky` in the owned partitions.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from ottla.client.consumer.group.assignors import Assignments, Assignor, PartitionCounts, in_order
from ottla.client.consumer.group.consumer_protocol import Subscription
from ottla.client.net.metadata import by_topic
from ottla.protocol.codec import decode_from, encode
from ottla.protocol.errors import DecodeError
from ottla.protocol.identifiers import NO_GENERATION, TopicPartition
from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Int32, String


@struct
class _PreviousAssignment(Message):
    topic: str = wire(String)
    partitions: list[int] = wire(Array(Int32))


@message("0-1")
class _StickyUserData(Message):
    previous_assignment: list[_PreviousAssignment] = wire(Array(_PreviousAssignment))
    generation: int = wire(Int32, "1+", default=NO_GENERATION)


@message("0")
class _CooperativeUserData(Message):
    generation: int = wire(Int32, default=NO_GENERATION)


_STICKY_VERSION: Final = 1


class StickyAssignor(Assignor):
    """Balanced, with as few moves as possible; members give up all partitions while the group rebalances."""

    name = "sticky"

    def user_data(self, owned: Collection[TopicPartition], generation: int) -> bytes | None:
        rows = [
            _PreviousAssignment(topic=topic, partitions=numbers) for topic, numbers in by_topic(sorted(owned)).items()
        ]
        return encode(_StickyUserData(previous_assignment=rows, generation=generation), _STICKY_VERSION)

    def assign(self, partitions: PartitionCounts, members: Mapping[str, Subscription]) -> Assignments:
        return balanced(partitions, {name: _sticky_claim(member) for name, member in members.items()})


class CooperativeStickyAssignor(Assignor):
    """As sticky, but the owner of a moving partition gives it up first; the next rebalance assigns it."""

    name = "cooperative-sticky"
    cooperative = True

    def user_data(self, owned: Collection[TopicPartition], generation: int) -> bytes | None:
        return encode(_CooperativeUserData(generation=generation), 0)

    def assign(self, partitions: PartitionCounts, members: Mapping[str, Subscription]) -> Assignments:
        claims = {name: _cooperative_claim(member) for name, member in members.items()}
        assigned = balanced(partitions, claims)
        owners = {partition: name for name, member in members.items() for partition in member.owned}
        return {
            name: [partition for partition in given if owners.get(partition, name) == name]
            for name, given in assigned.items()
        }


def _sticky_claim(member: Subscription) -> Subscription:
    if not member.user_data:
        return replace(member, owned=(), generation=NO_GENERATION)
    for version in (_STICKY_VERSION, 0):
        try:
            data = decode_from(_StickyUserData, version, member.user_data)[0]
        except DecodeError:
            continue
        owned = [TopicPartition(row.topic, number) for row in data.previous_assignment for number in row.partitions]
        return replace(member, owned=owned, generation=data.generation)
    return replace(member, owned=(), generation=NO_GENERATION)


def _cooperative_claim(member: Subscription) -> Subscription:
    if member.generation != NO_GENERATION or not member.user_data:
        return member
    try:
        data = decode_from(_CooperativeUserData, 0, member.user_data)[0]
    except DecodeError:
        return member
    return replace(member, generation=data.generation)


def balanced(partitions: PartitionCounts, members: Mapping[str, Subscription]) -> Assignments:
    """Assign the partitions, starting with the claims of the members."""
    order = in_order(members)
    topics = {name: frozenset(members[name].topics) for name in order}
    assigned = _claimed(partitions, members, topics)
    pool = _unclaimed(partitions, topics, assigned)
    if len(set(topics.values())) == 1:
        _trim(assigned, pool, order)
    _hand_out(pool, assigned, topics, order)
    _level(assigned, topics, order)
    return {name: sorted(given) for name, given in assigned.items()}


def _claimed(
    partitions: PartitionCounts, members: Mapping[str, Subscription], topics: Mapping[str, frozenset[str]]
) -> dict[str, set[TopicPartition]]:
    """Return what each member keeps: the claim of the newest generation wins; two equally new claims cancel out."""
    best: dict[TopicPartition, tuple[int, str | None]] = {}
    for name, member in members.items():
        for partition in member.owned:
            if partition.topic not in topics[name] or partition.partition >= partitions.get(partition.topic, 0):
                continue
            generation, owner = best.get(partition, (NO_GENERATION - 1, None))
            if member.generation > generation:
                best[partition] = member.generation, name
            elif member.generation == generation and owner != name:
                best[partition] = generation, None
    kept: dict[str, set[TopicPartition]] = {name: set() for name in members}
    for partition, (_, owner) in best.items():
        if owner is not None:
            kept[owner].add(partition)
    return kept


def _unclaimed(
    partitions: PartitionCounts, topics: Mapping[str, frozenset[str]], assigned: Mapping[str, set[TopicPartition]]
) -> list[TopicPartition]:
    taken = set().union(*assigned.values()) if assigned else set()
    wanted = sorted(set().union(*topics.values())) if topics else []
    everything = (TopicPartition(topic, number) for topic in wanted for number in range(partitions.get(topic, 0)))
    return [partition for partition in everything if partition not in taken]


def _trim(assigned: dict[str, set[TopicPartition]], pool: list[TopicPartition], order: list[str]) -> None:
    """Take partitions above a fair share from members that all subscribe to the same topics."""
    share, extra = divmod(len(pool) + sum(map(len, assigned.values())), len(order))
    for name in sorted(order, key=lambda name: -len(assigned[name])):
        limit = share + (extra > 0)
        if len(assigned[name]) > share and extra > 0:
            extra -= 1
        kept = sorted(assigned[name])
        assigned[name] = set(kept[:limit])
        pool += kept[limit:]


def _hand_out(
    pool: list[TopicPartition],
    assigned: dict[str, set[TopicPartition]],
    topics: Mapping[str, frozenset[str]],
    order: list[str],
) -> None:
    """Assign each free partition to the subscribed member with the fewest partitions."""
    takers: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for partition in sorted(pool):
        queue = takers[partition.topic]
        if not queue:
            queue += [(len(assigned[name]), rank) for rank, name in enumerate(order) if partition.topic in topics[name]]
            heapq.heapify(queue)
        # Counts in the queue of one topic become outdated when a member gets partitions of another.
        while queue[0][0] != (count := len(assigned[order[queue[0][1]]])):
            heapq.heapreplace(queue, (count, queue[0][1]))
        count, rank = queue[0]
        assigned[order[rank]].add(partition)
        heapq.heapreplace(queue, (count + 1, rank))


def _level(assigned: dict[str, set[TopicPartition]], topics: Mapping[str, frozenset[str]], order: list[str]) -> None:
    """Move partitions from members with many to members with fewer, as long as that improves the balance.

    Each move lowers the sum of the squares of the counts, so this ends.
    """
    while True:
        by_count = sorted(order, key=lambda name: len(assigned[name]))
        move = next(
            (
                (giver, taker, partition)
                for giver in reversed(by_count)
                for taker in by_count
                if len(assigned[giver]) - len(assigned[taker]) > 1
                for partition in sorted(assigned[giver])
                if partition.topic in topics[taker]
            ),
            None,
        )
        if move is None:
            return
        giver, taker, partition = move
        assigned[giver].remove(partition)
        assigned[taker].add(partition)
