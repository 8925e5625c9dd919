"""Consumer groups: lag in records and in seconds, who reads what, and why they were rebalanced."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from ottla.client.admin.admin import Admin
from ottla.client.admin.group_results import GroupDescription, GroupListing
from ottla.client.admin.results import OffsetSpec
from ottla.client.errors import GroupIdNotFoundError, KafkaError
from ottla.console.api.paging import ListQuery, matching, ordered, page
from ottla.console.cluster.brokers_http import PageError
from ottla.console.cluster.group_progress import Progress, partition_progress, worst
from ottla.console.cluster.rebalances import Rebalance, rebalances
from ottla.console.cluster.view import ClusterView, MissingBroker
from ottla.console.numbers import Long, long, maybe_long
from ottla.console.web.call import Call
from ottla.protocol.identifiers import TopicPartition

_AT_ONCE: Final = 16
_TIMEOUT_S: Final = 3.0
# To know how old a record is, its batch is read. So many for a group on its page, for one in the list, and for a list.
_TIMES_PER_GROUP: Final = 64
_TIMES_PER_ROW: Final = 4
_TIMES_PER_LIST: Final = 128


class GroupRow(msgspec.Struct, kw_only=True):
    """A group in the list; numbers are null if its coordinator did not answer."""

    group_id: str
    state: str
    type: str
    """classic, or consumer for the protocol of KIP-848."""
    protocol_type: str
    coordinator: int
    members: int | None
    topics: list[str]
    lag: Long | None
    """Records that are not committed yet, in all partitions."""
    lag_ms: int | None
    """The age of the first record that is not committed, of the partitions with the largest lags; null if unknown."""
    progress: Progress | None
    """That of its worst partition; null at the first looks. A group has stopped if it commits nothing for 12 s."""
    stopped_partitions: int
    error: str | None = None


class GroupRows(msgspec.Struct, kw_only=True):
    """A part of the list of groups."""

    as_of_ms: int
    items: list[GroupRow]
    total: int
    next: str | None
    missing: list[MissingBroker]


class GroupsQuery(ListQuery, kw_only=True):
    """Which groups to return; sort by group_id, state or coordinator."""

    state: str | None = None


class GroupPartition(msgspec.Struct, kw_only=True):
    """A partition that a group reads or has committed."""

    topic: str
    partition: int
    committed_offset: Long | None
    end_offset: Long | None
    lag: Long | None
    lag_ms: int | None
    """The age of the first record that is not committed; 0 without a lag, null if it is not known."""
    progress: Progress | None
    metadata: str
    member_id: str | None
    client_id: str | None
    client_host: str | None


class MemberRow(msgspec.Struct, kw_only=True):
    """A member of a group, and the partitions that it reads."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rack: str | None
    member_epoch: int | None
    subscribed_topics: list[str] | None
    assignment: dict[str, list[int]]
    """Partitions by topic."""
    target_assignment: dict[str, list[int]] | None
    lag: Long | None


class GroupDetail(msgspec.Struct, kw_only=True):
    """A group with members, offsets and rebalances."""

    as_of_ms: int
    group_id: str
    state: str
    type: str
    protocol_type: str
    assignor: str
    coordinator: int
    group_epoch: int | None
    members: list[MemberRow]
    partitions: list[GroupPartition]
    lag: Long | None
    lag_ms: int | None
    """That of the partition that is furthest behind."""
    progress: Progress | None
    """That of its worst partition; null at the first looks. A group has stopped if it commits nothing for 12 s."""
    stopped_partitions: int
    rebalances: list[Rebalance]
    rebalances_unknown: str | None
    """Why there are no rebalances to show: only Ottla's brokers tell them."""
    missing: list[MissingBroker]


async def list_groups(call: Call, query: GroupsQuery) -> GroupRows:
    """List groups with state, members and lag."""
    view = await call.view()
    groups = await view.groups()
    found = matching(groups.groups.values(), query.q, lambda each: each.group_id)
    if query.state is not None:
        found = [each for each in found if each.state.lower() == query.state.lower()]
    keys: dict[str, Callable[[GroupListing], Any]] = {
        "group_id": lambda each: each.group_id,
        "state": lambda each: each.state,
        "coordinator": lambda each: each.coordinator,
    }
    part, after = page(ordered(found, query.sort, keys), query.after, query.limit, lambda each: each.group_id)
    free = asyncio.Semaphore(_AT_ONCE)

    async def read(listing: GroupListing) -> tuple[GroupRow, dict[TopicPartition, int]]:
        async with free:
            return await _read_row(view, listing)

    rows = await asyncio.gather(*map(read, part))
    await _add_time_lags(view, rows)
    return GroupRows(
        as_of_ms=groups.as_of_ms,
        items=[row for row, _ in rows],
        total=len(found),
        next=after,
        missing=groups.missing,
    )


async def show_group(call: Call, group: str) -> GroupDetail:
    """Show a group with its members, lag by partition, and rebalances."""
    view = await call.view()
    described, committed = await _described(view.admin, group)
    members = {partition: member for member in described.members for partition in member.assignment}
    partitions = sorted({*committed, *members})
    ends = await _ends(view, partitions)
    lags = {each: max(0, ends[each] - committed[each][0]) for each in partitions if each in ends and each in committed}
    behind = _first_behind(lags, committed, _TIMES_PER_GROUP)
    await view.time_lags.read(behind)
    ages = view.time_lags.known(behind)
    rows = []
    for each in partitions:
        member = members.get(each)
        lag = lags.get(each)
        offset, metadata = committed.get(each, (None, ""))
        rows.append(
            GroupPartition(
                topic=each.topic,
                partition=each.partition,
                committed_offset=maybe_long(offset),
                end_offset=maybe_long(ends.get(each)),
                lag=maybe_long(lag),
                lag_ms=0 if lag == 0 else ages.get(each),
                progress=_progress(view, group, each, offset, ends.get(each), has_reader=member is not None),
                metadata=metadata,
                member_id=None if member is None else member.member_id,
                client_id=None if member is None else member.client_id,
                client_host=None if member is None else member.client_host.removeprefix("/"),
            )
        )
    try:
        timeline, unknown = await rebalances(view, group, described.coordinator), None
    except PageError as error:
        timeline, unknown = [], str(error)
    known_ages = [row.lag_ms for row in rows if row.lag_ms is not None]
    return GroupDetail(
        as_of_ms=view.now_ms(),
        group_id=group,
        state=described.state,
        type=described.type,
        protocol_type=described.protocol_type,
        assignor=described.assignor,
        coordinator=described.coordinator,
        group_epoch=described.group_epoch,
        members=[
            MemberRow(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host.removeprefix("/"),
                rack=member.rack,
                member_epoch=member.member_epoch,
                subscribed_topics=None if member.subscribed_topics is None else list(member.subscribed_topics),
                assignment=_by_topic(member.assignment),
                target_assignment=None if member.target_assignment is None else _by_topic(member.target_assignment),
                lag=long(sum(lags.get(each, 0) for each in member.assignment)),
            )
            for member in described.members
        ],
        partitions=rows,
        lag=long(sum(lags.values())) if lags or not partitions else None,
        lag_ms=max(known_ages, default=None),
        progress=worst([row.progress for row in rows]),
        stopped_partitions=sum(row.progress == "stopped" for row in rows),
        rebalances=timeline,
        rebalances_unknown=unknown,
        missing=(await view.state()).missing,
    )


async def _read_row(view: ClusterView, listing: GroupListing) -> tuple[GroupRow, dict[TopicPartition, int]]:
    """Return a group, and the committed offsets of the partitions in which it is furthest behind."""
    row = GroupRow(
        group_id=listing.group_id,
        state=listing.state,
        type=listing.type or "classic",
        protocol_type=listing.protocol_type,
        coordinator=listing.coordinator,
        members=None,
        topics=[],
        lag=None,
        lag_ms=None,
        progress=None,
        stopped_partitions=0,
    )
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            described, committed = await _described(view.admin, listing.group_id)
            assigned = {each for member in described.members for each in member.assignment}
            ends = await _ends(view, sorted({*committed, *assigned}))
    except TimeoutError:
        row.error = f"no answer within {_TIMEOUT_S:g} s"
        return row, {}
    except KafkaError as error:
        row.error = str(error)
        return row, {}
    lags = {each: max(0, ends[each] - offset) for each, (offset, _) in committed.items() if each in ends}
    progress = [
        _progress(view, listing.group_id, each, offset, ends.get(each), has_reader=each in assigned)
        for each, (offset, _) in committed.items()
    ]
    row.members = len(described.members)
    row.topics = sorted({each.topic for each in (*committed, *assigned)})
    row.lag = long(sum(lags.values()))
    row.lag_ms = None if any(lags.values()) else 0
    row.progress = worst(progress)
    row.stopped_partitions = progress.count("stopped")
    return row, _first_behind(lags, committed, _TIMES_PER_ROW)


async def _add_time_lags(view: ClusterView, rows: Sequence[tuple[GroupRow, Mapping[TopicPartition, int]]]) -> None:
    """Fill in the lags in time; one refresh asks for a limited number of records, and remembered ones are free."""
    known = [view.time_lags.known(behind) for _, behind in rows]
    wanted = [
        (partition, offset)
        for (_, behind), ages in zip(rows, known, strict=True)
        for partition, offset in behind.items()
        if partition not in ages
    ]
    await _read_times(view, wanted[:_TIMES_PER_LIST])
    for row, behind in rows:
        if behind:
            row.lag_ms = max(view.time_lags.known(behind).values(), default=None)


async def _read_times(view: ClusterView, wanted: Sequence[tuple[TopicPartition, int]]) -> None:
    """Several groups may be at different offsets of one partition."""
    rounds: list[dict[TopicPartition, int]] = []
    for partition, offset in dict.fromkeys(wanted):
        free = next((each for each in rounds if partition not in each), None)
        if free is None:
            rounds.append(free := {})
        free[partition] = offset
    await asyncio.gather(*map(view.time_lags.read, rounds))


def _first_behind(
    lags: Mapping[TopicPartition, int], committed: Mapping[TopicPartition, tuple[int, str]], count: int
) -> dict[TopicPartition, int]:
    """Return the committed offsets of the partitions with the largest lags."""
    largest = heapq.nlargest(count, (each for each, lag in lags.items() if lag), key=lambda each: lags[each])
    return {each: committed[each][0] for each in largest}


def _progress(
    view: ClusterView,
    group_id: str,
    partition: TopicPartition,
    committed: int | None,
    end: int | None,
    *,
    has_reader: bool,
) -> Progress | None:
    if committed is None or end is None:
        return None
    return partition_progress(view.rates, group_id, partition, committed, end, has_reader=has_reader)


async def _described(admin: Admin, group_id: str) -> tuple[GroupDescription, dict[TopicPartition, tuple[int, str]]]:
    """Return a group and its committed offsets with their metadata; a group may have offsets only."""
    committed = {
        TopicPartition(each.topic, each.partition): (each.offset, each.metadata)
        for each in await admin.list_group_offsets(group_id)
    }
    try:
        (described,) = await admin.describe_groups([group_id])
    except GroupIdNotFoundError:
        if not committed:
            raise
        described = GroupDescription(group_id, "classic", "Empty", "", "", -1)
    return described, committed


async def _ends(view: ClusterView, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    rows = await view.listed_offsets(partitions, OffsetSpec.LATEST)
    return {TopicPartition(each.topic, each.partition): each.offset for each in rows}


def _by_topic(partitions: tuple[TopicPartition, ...]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for each in partitions:
        found.setdefault(each.topic, []).append(each.partition)
    return found
