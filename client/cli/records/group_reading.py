"""Read topics as a member of a group: it gets a share of the partitions, and commits what was printed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Final

from ottla.client.cli.records.reading import ReadRecord
from ottla.client.consumer.consumer import Consumer
from ottla.client.types import ConsumerRecord
from ottla.protocol.record import Record

_POLL_MS: Final = 500


async def member_fetches(
    settings: Mapping[str, Any],
    group: str,
    topics: Sequence[str],
    pattern: str | None,
    *,
    reset: str,
    read_committed: bool,
    until_end: bool,
    count: int | None,
) -> AsyncGenerator[list[ReadRecord]]:
    """Yield the records of one poll at a time, `count` in all; those that the caller has taken are committed.

    `until_end` ends at the ends of the partitions that this member has, as they are when it has read all before.
    """
    options: dict[str, Any] = {
        **settings,
        "group_id": group,
        "auto_offset_reset": reset,
        "enable_auto_commit": False,
        "isolation_level": "read_committed" if read_committed else "read_uncommitted",
    }
    async with Consumer(**options) as consumer:
        consumer.subscribe(topics, pattern)
        left = count
        while left is None or left > 0:
            found = await consumer.getmany(timeout_ms=_POLL_MS, max_records=left)
            reads = [ReadRecord(each.topic_partition, _record(each)) for some in found.values() for each in some]
            if reads:
                left = None if left is None else left - len(reads)
                try:
                    yield reads
                finally:
                    await consumer.commit({each.partition: each.record.offset + 1 for each in reads})
            elif until_end and await _is_at_end(consumer):
                return


def _record(read: ConsumerRecord[Any, Any]) -> Record:
    return Record(read.offset, read.timestamp, read.key, read.value, list(read.headers))


async def _is_at_end(consumer: Consumer) -> bool:
    """Whether the member has partitions, and nothing is left in them."""
    assigned = consumer.assignment()
    if not assigned:
        return False
    ends = await consumer.end_offsets(assigned)
    return all([await consumer.position(each) >= ends[each] for each in assigned])
