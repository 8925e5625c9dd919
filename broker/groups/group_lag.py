"""How far groups are behind: in records, in time, and for how long they have not moved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.broker.groups.lag_lookups import LagLookups, RecordAt
from ottla.broker.groups.offsets.offset_store import CommittedOffset
from ottla.protocol.identifiers import TopicPartition

Committed = Mapping[TopicPartition, CommittedOffset]


class PartitionLag(NamedTuple):
    """How far a group is behind in a partition. Times are in milliseconds, and None if they are not known."""

    end_offset: int
    records: int
    # The age of the first record that is not committed.
    age_ms: int | None
    # For how long there has been that record to read, and the group has not moved. A slow group moves.
    stalled_ms: int | None


def lags_of(
    groups: Mapping[str, Committed], lookups: LagLookups, now_ms: int
) -> dict[str, dict[TopicPartition, PartitionLag]]:
    """Return the lag of each group in the partitions whose end is known. May wait two seconds for other brokers."""
    ends = lookups.ends({partition for committed in groups.values() for partition in committed})
    times = lookups.times(
        {
            RecordAt(partition, each.offset)
            for committed in groups.values()
            for partition, each in committed.items()
            if each.offset < ends.get(partition, 0)
        }
    )
    return {
        group_id: {
            partition: _lag(each, ends[partition], times.get(RecordAt(partition, each.offset)), now_ms)
            for partition, each in committed.items()
            if partition in ends
        }
        for group_id, committed in groups.items()
    }


def _lag(committed: CommittedOffset, end_offset: int, written_ms: int | None, now_ms: int) -> PartitionLag:
    records = max(end_offset - committed.offset, 0)
    if not records:
        return PartitionLag(end_offset, 0, 0, 0)
    if written_ms is None:
        return PartitionLag(end_offset, records, None, None)
    age_ms = max(now_ms - written_ms, 0)
    return PartitionLag(end_offset, records, age_ms, min(age_ms, max(now_ms - committed.moved_timestamp_ms, 0)))
