"""Topics: the list, and one topic with its partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from ottla.client.net.metadata import TopicInfo
from ottla.console.api.overview import PartitionState, partition_state
from ottla.console.api.paging import ListQuery, matching, ordered, page
from ottla.console.cluster.view import ClusterState, ClusterView, LogDirs, MissingBroker, TopicOffsets
from ottla.console.numbers import Long, long, maybe_long
from ottla.console.problems import Problem
from ottla.console.web.call import Call
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.primitives import UUID_ZERO, uuid_to_text


class TopicRow(msgspec.Struct, kw_only=True):
    """A topic in the list."""

    name: str
    is_internal: bool
    partitions: int
    replication_factor: int
    state: PartitionState
    """That of its worst partition."""
    lagging: int
    offline: int
    size_bytes: Long | None
    """Of all replicas; null if no broker told it."""
    records: Long | None
    """Offsets between start and end; compacted topics have fewer records."""
    records_per_s: float | None
    """Records written a second; null at the first look."""
    bytes_per_s: float | None
    """How fast it grows on disk, all replicas together; null at the first look, and after segments were deleted."""
    last_write_ms: int | None
    """The newest timestamp among its records."""
    groups: list[str]
    """Groups that have committed offsets of it."""


class TopicRows(msgspec.Struct, kw_only=True):
    """A part of the list of topics."""

    as_of_ms: int
    items: list[TopicRow]
    total: int
    """How many match the query."""
    next: str | None
    missing: list[MissingBroker]


class TopicsQuery(ListQuery, kw_only=True):
    """Which topics to return; sort by name, partitions, size or state."""

    internal: bool = False


class ReplicaRow(msgspec.Struct, kw_only=True):
    """A replica of a partition."""

    broker_id: int
    is_leader: bool
    is_in_sync: bool
    is_alive: bool
    size_bytes: Long | None
    offset_lag: Long | None
    """How far it is behind the leader."""


class PartitionRow(msgspec.Struct, kw_only=True):
    """A partition of a topic."""

    partition: int
    state: PartitionState
    leader: int | None
    leader_epoch: int
    preferred_leader: int | None
    replicas: list[ReplicaRow]
    isr: list[int]
    start_offset: Long | None
    end_offset: Long | None
    """The offset of the next record that readers will see; null if the leader did not answer."""
    records: Long | None
    records_per_s: float | None
    size_bytes: Long | None
    """Of the leader's replica."""
    last_write_ms: int | None


class TopicDetail(msgspec.Struct, kw_only=True):
    """A topic with its partitions."""

    as_of_ms: int
    name: str
    topic_id: str | None
    is_internal: bool
    replication_factor: int
    state: PartitionState
    partitions: list[PartitionRow]
    size_bytes: Long | None
    records: Long | None
    records_per_s: float | None
    bytes_per_s: float | None
    last_write_ms: int | None
    groups: list[str]
    missing: list[MissingBroker]


_RANK = {"offline": 0, "lagging": 1, "ok": 2}


async def list_topics(call: Call, query: TopicsQuery) -> TopicRows:
    """List topics with size, rate, last write and groups."""
    view = await call.view()
    state, log_dirs = await asyncio.gather(view.state(), view.log_dirs())
    found = matching(state.topics.values(), query.q, lambda topic: topic.name)
    found = [topic for topic in found if query.internal or not topic.is_internal]
    keys: dict[str, Callable[[TopicInfo], Any]] = {
        "name": lambda topic: topic.name,
        "partitions": lambda topic: len(topic.partitions),
        "size": lambda topic: log_dirs.topic_sizes.get(topic.name, 0),
        "state": lambda topic: _RANK[topic_state(topic)],
    }
    part, after = page(ordered(found, query.sort, keys), query.after, query.limit, lambda topic: topic.name)
    offsets, groups = await asyncio.gather(view.offsets(part), view.groups_by_topic())
    return TopicRows(
        as_of_ms=state.as_of_ms,
        items=[_row(view, topic, offsets[topic.name], log_dirs, groups.get(topic.name, [])) for topic in part],
        total=len(found),
        next=after,
        missing=log_dirs.missing,
    )


async def show_topic(call: Call, topic: str) -> TopicDetail:
    """Show a topic with its partitions and replicas."""
    view = await call.view()
    state = await view.state()
    info = found_topic(state, topic)
    log_dirs, found, groups = await asyncio.gather(view.log_dirs(), view.offsets([info]), view.groups_by_topic())
    offsets = found[topic]
    row = _row(view, info, offsets, log_dirs, groups.get(topic, []))
    return TopicDetail(
        as_of_ms=state.as_of_ms,
        name=info.name,
        topic_id=None if info.topic_id == UUID_ZERO else uuid_to_text(info.topic_id),
        is_internal=info.is_internal,
        replication_factor=row.replication_factor,
        state=row.state,
        partitions=[_partition(view, state, info, number, offsets, log_dirs) for number in info.partitions],
        size_bytes=row.size_bytes,
        records=row.records,
        records_per_s=row.records_per_s,
        bytes_per_s=row.bytes_per_s,
        last_write_ms=row.last_write_ms,
        groups=row.groups,
        missing=log_dirs.missing,
    )


def found_topic(state: ClusterState, name: str) -> TopicInfo:
    """Return a topic; Problem 404 if the user sees none of this name."""
    info = state.topics.get(name)
    if info is None:
        raise Problem(
            404,
            "There is no such topic",
            f"There is no topic {name[:249]!r}, or you may not see it.",
            code="UNKNOWN_TOPIC_OR_PARTITION",
        )
    return info


def topic_state(topic: TopicInfo) -> PartitionState:
    """Return the state of the worst partition."""
    states = [partition_state(each) for each in topic.partitions.values()]
    return min(states, key=lambda each: _RANK[each], default="ok")


def _row(view: ClusterView, topic: TopicInfo, offsets: TopicOffsets, log_dirs: LogDirs, groups: list[str]) -> TopicRow:
    states = [partition_state(each) for each in topic.partitions.values()]
    both = [number for number in offsets.ends if number in offsets.starts]
    is_known = bool(both) or not topic.partitions
    # A partition that is missing for a moment must not look like a fall and a rise.
    rates = [view.rates.per_second(("end", topic.name, number), end) for number, end in offsets.ends.items()]
    known = [rate for rate in rates if rate is not None]
    size = log_dirs.topic_sizes.get(topic.name)
    return TopicRow(
        name=topic.name,
        is_internal=topic.is_internal,
        partitions=len(topic.partitions),
        replication_factor=max((len(each.replicas) for each in topic.partitions.values()), default=0),
        state=topic_state(topic),
        lagging=states.count("lagging"),
        offline=states.count("offline"),
        size_bytes=maybe_long(size),
        records=long(sum(offsets.ends[each] - offsets.starts[each] for each in both)) if is_known else None,
        records_per_s=sum(known) if known else None,
        bytes_per_s=None if size is None else view.rates.per_second(("size", topic.name), size),
        last_write_ms=max(offsets.last_write_ms.values(), default=None),
        groups=groups,
    )


def _partition(
    view: ClusterView, state: ClusterState, topic: TopicInfo, number: int, offsets: TopicOffsets, log_dirs: LogDirs
) -> PartitionRow:
    each = topic.partitions[number]
    sizes = log_dirs.sizes.get(TopicPartition(topic.name, number), {})
    start, end = offsets.starts.get(number), offsets.ends.get(number)
    leader_size = sizes.get(each.leader) if each.leader is not None else None
    return PartitionRow(
        partition=number,
        state=partition_state(each),
        leader=each.leader,
        leader_epoch=each.leader_epoch,
        preferred_leader=each.replicas[0] if each.replicas else None,
        replicas=[
            ReplicaRow(
                broker_id=broker_id,
                is_leader=broker_id == each.leader,
                is_in_sync=broker_id in each.isr,
                is_alive=broker_id in state.brokers,
                size_bytes=maybe_long(sizes[broker_id][0] if broker_id in sizes else None),
                offset_lag=maybe_long(sizes[broker_id][1] if broker_id in sizes else None),
            )
            for broker_id in each.replicas
        ],
        isr=list(each.isr),
        start_offset=maybe_long(start),
        end_offset=maybe_long(end),
        records=None if start is None or end is None else long(end - start),
        records_per_s=None if end is None else view.rates.per_second(("end", topic.name, number), end),
        size_bytes=None if leader_size is None else long(leader_size[0]),
        last_write_ms=offsets.last_write_ms.get(number),
    )
