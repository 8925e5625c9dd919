"""Transactions: who has one open, and what holds back readers of committed records."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ottla.client.admin.results import OffsetSpec
from ottla.client.admin.transaction_results import OpenTransaction, TransactionListing
from ottla.client.errors import KafkaError
from ottla.console.api.changes import Change, ChangeRow, command_line
from ottla.console.api.paging import ListQuery, matching, ordered, page
from ottla.console.cluster.view import ClusterView, MissingBroker
from ottla.console.numbers import Long, long
from ottla.console.problems import Problem
from ottla.console.web.call import Call
from ottla.protocol.identifiers import TopicPartition

_PARTITIONS_MAX = 5_000


class TransactionRow(msgspec.Struct, kw_only=True):
    """A transactional id and its current or last transaction."""

    transactional_id: str
    state: str
    producer_id: Long
    producer_epoch: int | None
    coordinator: int
    timeout_ms: int | None
    started_ms: int | None
    """When the current transaction began; null if none is open."""
    partitions: list[str]
    error: str | None = None


class TransactionRows(msgspec.Struct, kw_only=True):
    """A part of the list of transactional ids."""

    as_of_ms: int
    items: list[TransactionRow]
    total: int
    next: str | None
    missing: list[MissingBroker]


class TransactionsQuery(ListQuery, kw_only=True):
    """Which ids to return; sort by transactional_id or state."""

    state: str | None = None


class HeldBack(msgspec.Struct, kw_only=True):
    """A transaction that is open in a partition; readers of committed records wait at its start."""

    topic: str
    partition: int
    start_offset: Long
    last_stable_offset: Long
    end_offset: Long
    waiting: Long
    """Records that readers of committed records cannot see yet."""
    holds: bool
    """Whether this transaction is the one at the last stable offset."""
    producer_id: Long
    producer_epoch: int
    coordinator_epoch: int | None
    transactional_id: str | None
    state: str | None
    started_ms: int | None
    timeout_ms: int | None
    last_write_ms: int | None
    is_hanging: bool
    """Whether no coordinator will ever end it: it has to be aborted."""


class OpenTransactions(msgspec.Struct, kw_only=True):
    """All open transactions, by partition."""

    as_of_ms: int
    items: list[HeldBack]
    unknown: str | None
    """Why not everything could be looked at."""
    missing: list[MissingBroker]


class OpenQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Which topics to look at; all by default."""

    topic: list[str] = []


class Abort(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A transaction that hangs in a partition."""

    topic: str
    partition: Annotated[int, Meta(ge=0)]
    producer_id: Long
    producer_epoch: int
    coordinator_epoch: int | None = None
    force: bool = False
    """Also if a coordinator knows it: it may be committed in its other partitions."""
    dry_run: bool = True


class Fence(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A transactional id whose transaction is aborted, and whose producer is shut out."""

    transactional_id: str
    dry_run: bool = True


async def list_transactions(call: Call, query: TransactionsQuery) -> TransactionRows:
    """List transactional ids with their state."""
    view = await call.view()
    states = [query.state] if query.state else []
    answers, missing = await view.from_brokers(
        lambda broker_id: view.admin.list_transactions(states, brokers=[broker_id])
    )
    found = matching(
        (each for answer in answers.values() for each in answer), query.q, lambda each: each.transactional_id
    )
    keys: dict[str, Callable[[TransactionListing], Any]] = {
        "transactional_id": lambda each: each.transactional_id,
        "state": lambda each: each.state,
    }
    part, after = page(ordered(found, query.sort, keys), query.after, query.limit, lambda each: each.transactional_id)
    described = await view.admin.describe_transactions([each.transactional_id for each in part], raise_errors=False)
    rows = []
    for listing, each in zip(part, described, strict=True):
        is_known = each.error is None
        rows.append(
            TransactionRow(
                transactional_id=listing.transactional_id,
                state=each.state if is_known else listing.state,
                producer_id=long(listing.producer_id),
                producer_epoch=each.producer_epoch if is_known else None,
                coordinator=listing.coordinator,
                timeout_ms=each.timeout_ms if is_known else None,
                started_ms=each.start_time_ms if is_known and each.state == "Ongoing" else None,
                partitions=[str(partition) for partition in each.partitions],
                error=None if each.error is None else str(each.error),
            )
        )
    return TransactionRows(as_of_ms=view.now_ms(), items=rows, total=len(found), next=after, missing=missing)


async def list_open_transactions(call: Call, query: OpenQuery) -> OpenTransactions:
    """List transactions that are open in partitions, with how much they hold back."""
    view = await call.view()
    state = await view.state()
    partitions = [
        TopicPartition(topic.name, number)
        for topic in state.topics.values()
        if not query.topic or topic.name in query.topic
        for number in topic.partitions
    ]
    unknown = None
    if len(partitions) > _PARTITIONS_MAX:
        unknown = f"Only {_PARTITIONS_MAX} of {len(partitions)} partitions were looked at: choose topics."
        del partitions[_PARTITIONS_MAX:]
    stable, ends = await _stable_and_end(view, partitions)
    held = [each for each in partitions if each in stable and each in ends and stable[each] < ends[each]]
    items: list[HeldBack] = []
    if held:
        for each in await view.admin.list_open_transactions(held, raise_errors=False):
            if each.error is not None:
                unknown = str(each.error)
            else:
                items.append(_held_back(each, stable, ends))
    items.sort(key=lambda each: (not each.is_hanging, each.topic, each.partition, int(each.start_offset)))
    return OpenTransactions(as_of_ms=view.now_ms(), items=items, unknown=unknown, missing=state.missing)


async def abort_transaction(call: Call, body: Abort) -> Change:
    """Abort a transaction that hangs in a partition."""
    admin = await call.admin()
    partition = TopicPartition(body.topic, body.partition)
    producer_id = int(body.producer_id)
    opened = await admin.list_open_transactions([partition])
    found = next((each for each in opened if each.producer_id == producer_id), None)
    if found is None:
        raise Problem(404, "No such transaction is open", f"Producer {producer_id} has none open in {partition}.")
    if not found.is_hanging and not body.force:
        raise Problem(
            409,
            "A coordinator knows this transaction",
            "It may be committed in its other partitions.",
            advice=f"Fence {found.transactional_id} instead." if found.transactional_id else None,
        )
    if not body.dry_run:
        await admin.abort_transaction(partition, producer_id, body.producer_epoch, body.coordinator_epoch)
    arguments = ["transaction", "abort", f"{body.topic}:{body.partition}", "--producer-id", str(producer_id)]
    if body.force:
        arguments.append("--force")
    return Change(
        is_dry_run=body.dry_run,
        changes=[ChangeRow(subject=f"{partition} at {found.start_offset}", before="open", after="aborted")],
        warnings=["Its records are never shown to readers of committed records."],
        command=command_line(*arguments),
    )


async def fence_producer(call: Call, body: Fence) -> Change:
    """Abort the transaction of a transactional id, and shut out the producer that uses it."""
    admin = await call.admin()
    (described,) = await admin.describe_transactions([body.transactional_id])
    if not body.dry_run:
        await admin.fence_producers([body.transactional_id])
    return Change(
        is_dry_run=body.dry_run,
        changes=[ChangeRow(subject=body.transactional_id, before=described.state, after="fenced")],
        warnings=["The producer that uses this id fails, and has to be created again."],
        command=command_line("transaction", "fence", body.transactional_id),
    )


async def _stable_and_end(
    view: ClusterView, partitions: list[TopicPartition]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    async def latest(level: Any) -> dict[TopicPartition, int]:
        state = await view.state()
        asked = [
            each for each in partitions if state.topics[each.topic].partitions[each.partition].leader in state.brokers
        ]
        try:
            rows = await view.admin.list_offsets(
                dict.fromkeys(asked, OffsetSpec.LATEST), isolation_level=level, raise_errors=False
            )
        except KafkaError:
            return {}
        return {TopicPartition(each.topic, each.partition): each.offset for each in rows if each.error is None}

    # The end first: a transaction that is committed in between must not look open.
    ends = await latest("read_uncommitted")
    stable = await latest("read_committed")
    await asyncio.sleep(0)
    return stable, ends


def _held_back(each: OpenTransaction, stable: dict[TopicPartition, int], ends: dict[TopicPartition, int]) -> HeldBack:
    partition = TopicPartition(each.topic, each.partition)
    return HeldBack(
        topic=each.topic,
        partition=each.partition,
        start_offset=long(each.start_offset),
        last_stable_offset=long(stable[partition]),
        end_offset=long(ends[partition]),
        waiting=long(ends[partition] - stable[partition]),
        holds=each.start_offset <= stable[partition],
        producer_id=long(each.producer_id),
        producer_epoch=each.producer_epoch,
        coordinator_epoch=each.coordinator_epoch,
        transactional_id=each.transactional_id,
        state=each.state,
        started_ms=each.start_time_ms,
        timeout_ms=each.timeout_ms,
        last_write_ms=each.last_timestamp,
        is_hanging=each.is_hanging,
    )
