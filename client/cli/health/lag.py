"""The lag of a group: committed offsets, end offsets, and the members that read the partitions."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final, Literal

from ottla.client.admin.admin import Admin
from ottla.client.admin.group_results import GroupDescription
from ottla.client.admin.results import OffsetSpec, Result
from ottla.protocol.identifiers import TopicPartition

# `behind` is said where it is not known whether the group reads.
Progress = Literal["caught_up", "reading", "stopped", "behind"]
# Clients commit every five seconds by default. One that takes longer for a record has not stopped yet.
STOPPED_MS: Final = 30_000


@dataclass(frozen=True, slots=True)
class PartitionLag(Result):
    """A partition that a group reads or has committed; `lag` is None if either offset is unknown.

    `lag_ms` is the age of the first record that is not committed: 0 without a lag, None if it is not known.
    `stalled_ms` is for how long there has been that record to read, and the group has not moved.
    """

    group_id: str
    topic: str
    partition: int
    current_offset: int | None
    log_end_offset: int | None
    lag: int | None
    member_id: str | None
    client_host: str | None
    client_id: str | None
    lag_ms: int | None = None
    progress: Progress | None = None
    stalled_ms: int | None = None


async def lag_of(
    admin: Admin, group_id: str, *, with_times: bool = False, now_ms: int | None = None
) -> tuple[GroupDescription, list[PartitionLag]]:
    """Return a group and all its partitions, sorted; GroupIdNotFoundError if there is no such group.

    With times, a record is read of each partition that has a lag.
    """
    (group,) = await admin.describe_groups([group_id])
    offsets = {TopicPartition(each.topic, each.partition): each for each in await admin.list_group_offsets(group_id)}
    committed = {partition: each.offset for partition, each in offsets.items()}
    members = {partition: member for member in group.members for partition in member.assignment}
    partitions = sorted({*committed, *members})
    # A topic may have been deleted while its committed offsets are still there.
    ends = {
        TopicPartition(each.topic, each.partition): each.offset
        for each in await admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST), raise_errors=False)
        if each.error is None
    }
    # The group may have committed newer records after we asked for the end offsets.
    known = {each: max(0, ends[each] - committed[each]) for each in partitions if each in ends and each in committed}
    times: dict[TopicPartition, int] = {}
    if with_times:
        times = await admin.record_times({each: committed[each] for each, lag in known.items() if lag})
    now = int(time.time() * 1000) if now_ms is None else now_ms
    lags = []
    for partition in partitions:
        current, end, member = committed.get(partition), ends.get(partition), members.get(partition)
        lag = known.get(partition)
        lag_ms = max(0, now - times[partition]) if partition in times else 0 if lag == 0 and with_times else None
        moved_ms = offsets[partition].moved_ms if partition in offsets else None
        stalled_ms = None if lag_ms is None or moved_ms is None else min(lag_ms, max(0, now - moved_ms))
        lags.append(
            PartitionLag(
                group_id,
                *partition,
                current,
                end,
                lag,
                None if member is None else member.member_id,
                None if member is None else member.client_host.removeprefix("/"),
                None if member is None else member.client_id,
                lag_ms,
                progress_of(lag, stalled_ms, has_reader=member is not None),
                stalled_ms,
            )
        )
    return group, lags


def progress_of(lag: int | None, stalled_ms: int | None, *, has_reader: bool) -> Progress | None:
    """Return whether a group reads a partition; None if its lag is not known."""
    if lag is None:
        return None
    if lag == 0:
        return "caught_up"
    if stalled_ms is None:
        return "behind" if has_reader else "stopped"
    return "stopped" if stalled_ms >= STOPPED_MS else "reading"
