"""Consumer groups: lag in records and in seconds, who reads what, and why they were rebalanced."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec

from ottla.client.admin.admin import Admin
from ottla.client.admin.group_results import GroupDescription, GroupListing
from ottla.client.admin.results import OffsetSpec
from ottla.client.errors import GroupIdNotFoundError, KafkaError
from ottla.console.api.paging import ListQuery, matching, ordered, page
from ottla.console.cluster.brokers_http import PageError
from ottla.console.cluster.rebalances import Rebalance, rebalances
from ottla.console.cluster.time_lag import time_lags
from ottla.console.cluster.view import ClusterView, MissingBroker
from ottla.console.numbers import Long, long, maybe_long
from ottla.console.web.call import Call
from ottla.protocol.identifiers import TopicPartition

_AT_ONCE: Final = 16
_TIMEOUT_S: Final = 3.0


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

    async def row(listing: GroupListing) -> GroupRow:
        async with free:
            return await _row(view, listing)

    return GroupRows(
        as_of_ms=groups.as_of_ms,
        items=list(await asyncio.gather(*map(row, part))),
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
    behind = {each: committed[each][0] for each, lag in lags.items() if lag}
    ages = await time_lags(view, behind) if not call.settings.hides_records else {}
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
        rebalances=timeline,
        rebalances_unknown=unknown,
        missing=(await view.state()).missing,
    )


async def _row(view: ClusterView, listing: GroupListing) -> GroupRow:
    row = GroupRow(
        group_id=listing.group_id,
        state=listing.state,
        type=listing.type or "classic",
        protocol_type=listing.protocol_type,
        coordinator=listing.coordinator,
        members=None,
        topics=[],
        lag=None,
    )
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            described, committed = await _described(view.admin, listing.group_id)
            assigned = {each for member in described.members for each in member.assignment}
            ends = await _ends(view, sorted({*committed, *assigned}))
    except TimeoutError:
        row.error = f"no answer within {_TIMEOUT_S:g} s"
        return row
    except KafkaError as error:
        row.error = str(error)
        return row
    row.members = len(described.members)
    row.topics = sorted({each.topic for each in (*committed, *assigned)})
    row.lag = long(sum(max(0, ends[each] - offset) for each, (offset, _) in committed.items() if each in ends))
    return row


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
