"""Whether a broker can be stopped without harm: the rule of `ottla broker safe-to-stop`, of `ottla cluster restart`
and of the console.

A broker is safe to stop if every partition keeps a leader and enough replicas in sync for acks=all without it, and if
the others can take over: there is a controller, and brokers reach ZooKeeper.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from ottla.client.admin.admin import Admin
from ottla.client.admin.results import Result
from ottla.client.cli.health.min_isr import min_isr_by_topic
from ottla.client.cli.health.zookeeper_sessions import without_zookeeper
from ottla.client.cli.terminal.errors import CommandError
from ottla.client.errors import KafkaError
from ottla.protocol.identifiers import TopicPartition

T = TypeVar("T")

_NAMED_MAX: Final = 5
_ANSWER_TIMEOUT_S: Final = 3.0


class Replicas(Protocol):
    """What the rule needs to know of a partition."""

    @property
    def leader(self) -> int | None: ...
    @property
    def replicas(self) -> Sequence[int]: ...
    @property
    def isr(self) -> Sequence[int]: ...


@dataclass(frozen=True, slots=True)
class SafeToStop(Result):
    """Whether a broker can be stopped now, and what would happen."""

    broker_id: int
    is_safe: bool
    # Why it is not safe.
    reasons: tuple[str, ...]
    # What happens, or is weaker, although it is safe.
    notes: tuple[str, ...]
    is_controller: bool
    # Partitions that would have no leader, that would refuse acks=all, and whose leader moves to another broker.
    unavailable: tuple[TopicPartition, ...]
    below_min_isr: tuple[TopicPartition, ...]
    leaders_to_move: tuple[TopicPartition, ...]
    # Other brokers that are down, or whose replicas are not all in sync.
    brokers_down: tuple[int, ...]
    catching_up: tuple[int, ...]
    # What the broker coordinates, which moves with its partitions; None if it was not asked or did not answer.
    groups: tuple[str, ...] | None = None
    transactional_ids: tuple[str, ...] | None = None


def safe_to_stop(
    broker_id: int,
    brokers: Collection[int],
    controller_id: int | None,
    partitions: Iterable[tuple[TopicPartition, Replicas]],
    min_isr: Mapping[str, int],
    *,
    cut_off: Collection[int] = (),
    allow_unreplicated: bool = False,
) -> SafeToStop:
    """Return what would happen if a broker stopped now.

    `brokers` are alive, and those in `cut_off` do not reach ZooKeeper. `min_isr` has min.insync.replicas by topic.
    Partitions without a spare replica are never safe; with `allow_unreplicated` they are only noted.
    """
    unavailable: dict[TopicPartition, bool] = {}
    below: dict[TopicPartition, bool] = {}
    leaders: list[TopicPartition] = []
    unread: dict[str, None] = {}
    down: set[int] = set()
    behind: set[int] = set()
    for name, each in partitions:
        for replica in each.replicas:
            if replica != broker_id and replica not in brokers:
                down.add(replica)
            elif replica != broker_id and replica not in each.isr:
                behind.add(replica)
        if each.leader == broker_id:
            leaders.append(name)
        if broker_id not in each.isr:
            continue
        left = sum(replica != broker_id and replica in brokers for replica in each.isr)
        if not left:
            unavailable[name] = len(each.replicas) == 1
        elif name.topic not in min_isr:
            unread[name.topic] = None
        elif left < min_isr[name.topic]:
            below[name] = len(each.replicas) <= min_isr[name.topic]
    reasons, notes = _told(unavailable, below, allow_unreplicated=allow_unreplicated)
    if unread:
        reasons.append(f"min.insync.replicas of {_counted(unread, 'topic')} cannot be read: {named(list(unread))}.")
    if controller_id is None:
        reasons.append("There is no controller, so no other broker would take over.")
    if cut_off:
        reasons.append(f"{_brokers(cut_off)} without ZooKeeper, so no other broker would take over.")
    if len(brokers) == 1:
        (notes if allow_unreplicated else reasons).append("It is the only broker.")
    if down:
        notes.append(f"{_brokers(down)} down.")
    if behind:
        notes.append(f"{_brokers(behind)} catching up.")
    if controller_id == broker_id and len(brokers) > 1:
        notes.append("It is the controller: another broker takes over. In a rolling restart, take it last.")
    return SafeToStop(
        broker_id,
        not reasons,
        tuple(reasons),
        tuple(notes),
        controller_id == broker_id,
        tuple(unavailable),
        tuple(below),
        tuple(each for each in leaders if each not in unavailable),
        tuple(sorted(down)),
        tuple(sorted(behind)),
    )


async def ask_safe_to_stop(admin: Admin, broker_id: int, *, allow_unreplicated: bool = False) -> SafeToStop:
    """Ask the cluster whether a broker can be stopped; CommandError if there is no such broker."""
    cluster = await admin.describe_cluster()
    alive = {each.broker_id for each in cluster.brokers}
    if broker_id not in alive:
        raise CommandError(f"There is no broker {broker_id}; the live brokers are {named(sorted(alive))}.")
    topics = await admin.describe_topics(raise_errors=False)
    silent = await _silent(admin, alive - {broker_id})
    found = safe_to_stop(
        broker_id,
        # A broker that has just died, or hangs, is a member of the cluster until its session ends.
        alive - silent,
        cluster.controller_id,
        [(TopicPartition(topic.name, each.partition), each) for topic in topics for each in topic.partitions],
        await min_isr_by_topic(admin, [topic.name for topic in topics if topic.replication_factor > 1]),
        cut_off=await without_zookeeper(admin, [each for each in cluster.brokers if each.broker_id not in silent]),
        allow_unreplicated=allow_unreplicated,
    )
    groups = await _if_known(admin.list_groups(brokers=[broker_id]))
    transactions = await _if_known(admin.list_transactions(brokers=[broker_id]))
    return dataclasses.replace(
        found,
        groups=None if groups is None else tuple(each.group_id for each in groups),
        transactional_ids=None if transactions is None else tuple(each.transactional_id for each in transactions),
    )


async def _silent(admin: Admin, brokers: Collection[int]) -> set[int]:
    """Return the brokers that do not answer."""

    async def is_silent(broker_id: int) -> bool:
        try:
            async with asyncio.timeout(_ANSWER_TIMEOUT_S):
                await admin.api_versions(broker_id)
        except (KafkaError, TimeoutError):
            return True
        return False

    asked = list(brokers)
    return {each for each, so in zip(asked, await asyncio.gather(*map(is_silent, asked)), strict=True) if so}


async def _if_known(asked: Awaitable[T]) -> T | None:
    """Return an answer; None if the broker is too old for the question, or we have no right to it."""
    try:
        return await asked
    except KafkaError:
        return None


def _told(
    unavailable: Mapping[TopicPartition, bool], below: Mapping[TopicPartition, bool], *, allow_unreplicated: bool
) -> tuple[list[str], list[str]]:
    """Return reasons and notes about partitions, which are mapped to whether they have no spare replica."""
    reasons: list[str] = []
    notes: list[str] = []
    lone, held = (_texts(unavailable, is_lone) for is_lone in (True, False))
    tight, low = (_texts(below, is_tight) for is_tight in (True, False))
    if held:
        reasons.append(f"It has the only copy in sync of {_counted(held, 'partition')}: {named(held)}.")
    if low:
        reasons.append(f"{_counted(low, 'partition')} would refuse acks=all: {named(low)}.")
    always = notes if allow_unreplicated else reasons
    if lone:
        always.append(
            f"It has the only replica of {_counted(lone, 'partition')}, unavailable while it is down: {named(lone)}."
        )
    if tight:
        always.append(
            f"{_counted(tight, 'partition')} would refuse acks=all, because min.insync.replicas is all their replicas:"
            f" {named(tight)}."
        )
    return reasons, notes


def _texts(partitions: Mapping[TopicPartition, bool], wanted: bool) -> list[str]:
    return [f"{each.topic}-{each.partition}" for each, is_so in partitions.items() if is_so is wanted]


def _counted(things: Collection[object], noun: str) -> str:
    return f"{len(things)} {noun}" if len(things) == 1 else f"{len(things)} {noun}s"


def _brokers(ids: Collection[int]) -> str:
    return f"Broker {named(sorted(ids))} is" if len(ids) == 1 else f"Brokers {named(sorted(ids))} are"


def named(names: Sequence[object]) -> str:
    """Return the first few names, and how many more there are."""
    shown = ", ".join(map(str, names[:_NAMED_MAX]))
    return f"{shown} and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else shown
