"""The cluster at a glance: brokers, partitions by state, rates, and what needs attention first."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ottla.client.net.metadata import PartitionInfo
from ottla.console.api.attention import Attention, attention
from ottla.console.api.paging import Limit
from ottla.console.cluster.throughput import ClusterRates, cluster_rates
from ottla.console.cluster.view import ClusterState, MissingBroker
from ottla.console.numbers import Long, maybe_long
from ottla.console.web.call import Call

PartitionState = Literal["ok", "lagging", "offline"]


class PartitionCounts(msgspec.Struct, kw_only=True):
    """Partitions by state; `not_preferred` ones are led by another replica than their first."""

    total: int
    ok: int
    lagging: int
    """With a leader, but not all replicas are in sync."""
    offline: int
    """Without a leader."""
    not_preferred: int


class OverviewBroker(msgspec.Struct, kw_only=True):
    """A broker, alive or not; the counts are of its replicas."""

    broker_id: int
    host: str | None
    port: int | None
    rack: str | None
    is_alive: bool
    is_controller: bool
    replicas: int
    leaders: int
    in_sync: int
    """Replicas in sync, leaders included."""
    lagging: int
    size_bytes: Long | None
    disk_total_bytes: Long | None
    disk_free_bytes: Long | None


class Overview(msgspec.Struct, kw_only=True):
    """The whole cluster."""

    as_of_ms: int
    cluster_id: str | None
    controller_id: int | None
    brokers: list[OverviewBroker]
    topics: int
    internal_topics: int
    partitions: PartitionCounts
    groups: dict[str, int]
    """Groups by state."""
    rates: ClusterRates
    attention: list[Attention]
    """The most urgent first; empty if all is well."""
    missing: list[MissingBroker]


class PartitionCell(msgspec.Struct, kw_only=True):
    """A partition in the picture of the cluster."""

    topic: str
    partition: int
    state: PartitionState
    leader: int | None
    replicas: list[int]
    isr: list[int]


class PartitionCells(msgspec.Struct, kw_only=True):
    """Partitions, those with problems first."""

    as_of_ms: int
    brokers: list[int]
    """All brokers, dead ones included: the rows of the picture."""
    items: list[PartitionCell]
    total: int
    next: str | None
    missing: list[MissingBroker]


class PartitionsQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Which partitions to return."""

    state: Literal["any", "ok", "lagging", "offline"] = "any"
    topic: str | None = None
    internal: bool = True
    limit: Limit = 300
    after: Annotated[str | None, Meta(description="The `next` of the answer before.")] = None


async def show_overview(call: Call) -> Overview:
    """Show brokers, partitions by state, rates, and what needs attention."""
    view = await call.view()
    state = await view.state()
    log_dirs, groups, rates = await asyncio.gather(view.log_dirs(), view.groups(), cluster_rates(view))
    sizes: Counter[int] = Counter()
    totals: dict[int, list[tuple[int | None, int | None]]] = {}
    for each in log_dirs.dirs:
        sizes[each.broker_id] += each.size_bytes
        totals.setdefault(each.broker_id, []).append((each.total_bytes, each.usable_bytes))
    brokers = broker_rows(state)
    for broker in brokers:
        if broker.broker_id in totals:
            broker.size_bytes = maybe_long(sizes[broker.broker_id])
            disks = totals[broker.broker_id]
            # Directories on one disk report the same numbers.
            told = {pair for pair in disks if None not in pair}
            broker.disk_total_bytes = maybe_long(sum(pair[0] or 0 for pair in told)) if told else None
            broker.disk_free_bytes = maybe_long(sum(pair[1] or 0 for pair in told)) if told else None
    missing = list({each.broker_id: each for each in (*log_dirs.missing, *groups.missing, *state.missing)}.values())
    return Overview(
        as_of_ms=state.as_of_ms,
        cluster_id=state.cluster_id,
        controller_id=state.controller_id,
        brokers=brokers,
        topics=sum(not topic.is_internal for topic in state.topics.values()),
        internal_topics=sum(topic.is_internal for topic in state.topics.values()),
        partitions=partition_counts(state),
        groups=dict(Counter(each.state or "unknown" for each in groups.groups.values())),
        rates=rates,
        attention=attention(state, log_dirs),
        missing=missing,
    )


async def list_partitions(call: Call, query: PartitionsQuery) -> PartitionCells:
    """List partitions with their replicas, those with problems first."""
    view = await call.view()
    state = await view.state()
    rank = {"offline": 0, "lagging": 1, "ok": 2}
    rows = [
        (rank[kind], topic.name, number, kind, each)
        for topic in state.topics.values()
        if (query.topic is None or topic.name == query.topic) and (query.internal or not topic.is_internal)
        for number, each in topic.partitions.items()
        if query.state in ("any", kind := partition_state(each))
    ]
    rows.sort(key=lambda row: row[:3])
    start = int(query.after) if query.after and query.after.isdigit() else 0
    part = rows[start : start + query.limit]
    return PartitionCells(
        as_of_ms=state.as_of_ms,
        brokers=sorted({*state.brokers, *state.dead_brokers}),
        items=[
            PartitionCell(
                topic=name,
                partition=number,
                state=kind,
                leader=each.leader,
                replicas=list(each.replicas),
                isr=list(each.isr),
            )
            for _, name, number, kind, each in part
        ],
        total=len(rows),
        next=str(start + query.limit) if start + query.limit < len(rows) else None,
        missing=state.missing,
    )


def partition_state(partition: PartitionInfo) -> PartitionState:
    """Return whether a partition has a leader, and all its replicas in sync."""
    if partition.leader is None:
        return "offline"
    return "ok" if len(partition.isr) >= len(partition.replicas) else "lagging"


def partition_counts(state: ClusterState) -> PartitionCounts:
    """Count the partitions by state."""
    counts: Counter[str] = Counter()
    not_preferred = 0
    for topic in state.topics.values():
        for each in topic.partitions.values():
            counts[partition_state(each)] += 1
            not_preferred += each.leader is not None and each.leader != each.replicas[0]
    return PartitionCounts(
        total=counts.total(),
        ok=counts["ok"],
        lagging=counts["lagging"],
        offline=counts["offline"],
        not_preferred=not_preferred,
    )


def broker_rows(state: ClusterState) -> list[OverviewBroker]:
    """Return all brokers with the counts of their replicas."""
    replicas: Counter[int] = Counter()
    leaders: Counter[int] = Counter()
    in_sync: Counter[int] = Counter()
    for topic in state.topics.values():
        for each in topic.partitions.values():
            replicas.update(each.replicas)
            in_sync.update(each.isr)
            if each.leader is not None:
                leaders[each.leader] += 1
    rows = []
    for broker_id in sorted({*state.brokers, *state.dead_brokers}):
        broker = state.brokers.get(broker_id)
        is_alive = broker is not None
        synced = in_sync[broker_id] if is_alive else 0
        rows.append(
            OverviewBroker(
                broker_id=broker_id,
                host=broker.host if broker else None,
                port=broker.port if broker else None,
                rack=broker.rack if broker else None,
                is_alive=is_alive,
                is_controller=broker_id == state.controller_id,
                replicas=replicas[broker_id],
                leaders=leaders[broker_id],
                in_sync=synced,
                lagging=replicas[broker_id] - synced,
                size_bytes=None,
                disk_total_bytes=None,
                disk_free_bytes=None,
            )
        )
    return rows
