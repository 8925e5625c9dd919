"""The lag of a group: committed offsets, end offsets, and the members that read the partitions."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ottla.client.admin.admin import Admin
from ottla.client.admin.group_results import GroupDescription
from ottla.client.admin.results import OffsetSpec, Result
from ottla.protocol.identifiers import TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionLag(Result):
    """A partition that a group reads or has committed; `lag` is None if either offset is unknown.

    `lag_ms` is the age of the first record that is not committed: 0 without a lag, None if it is not known.
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


async def lag_of(
    admin: Admin, group_id: str, *, with_times: bool = False, now_ms: int | None = None
) -> tuple[GroupDescription, list[PartitionLag]]:
    """Return a group and all its partitions, sorted; GroupIdNotFoundError if there is no such group.

    With times, a record is read of each partition that has a lag.
    """
    (group,) = await admin.describe_groups([group_id])
    committed = {
        TopicPartition(each.topic, each.partition): each.offset for each in await admin.list_group_offsets(group_id)
    }
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
                max(0, now - times[partition]) if partition in times else 0 if lag == 0 and with_times else None,
            )
        )
    return group, lags
