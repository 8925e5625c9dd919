"""Where to go on: the end of the log in the destination, once it is certain that its last records are the source's."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Final

from ottla.client.consumer.offset_lookup import look_up_once
from ottla.client.errors import KafkaError
from ottla.client.mirror.destination import Destination
from ottla.client.mirror.partition_copy import PartitionCopy
from ottla.client.mirror.reading import Reader
from ottla.client.net.cluster_client import ClusterClient
from ottla.client.types import OffsetAndTimestamp
from ottla.protocol.errors import CorruptBatchError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.list_offsets import EARLIEST, LATEST
from ottla.protocol.record import Record
from ottla.protocol.records import RecordBatch

# Comparing the last records takes two fetches for each partition.
_COMPARED_AT_ONCE: Final = 16
# A leader of the source that was just elected may not know yet how far the log is committed.
# After twenty seconds, it does.
_FAILURES_BEHIND_MAX: Final = 10
# How many offsets are compared.
_COMPARED_OFFSETS: Final = 100

Offsets = dict[TopicPartition, "tuple[int, int] | KafkaError"]


class Positions:
    """Finds the positions of partitions."""

    def __init__(self, source: Reader, destination_reader: Reader, destination: Destination) -> None:
        self._source = source
        self._destination_reader = destination_reader
        self._destination = destination

    async def look_up(self, copies: Sequence[PartitionCopy]) -> None:
        """Give each copy its position, or an error and another try later, or a problem that ends it."""
        now = asyncio.get_running_loop().time()
        partitions = [copy.partition for copy in copies]
        source, destination = await asyncio.gather(
            bounds(self._source.cluster, partitions, self._source.isolation),
            bounds(self._destination_reader.cluster, partitions),
        )
        found = []
        for copy in copies:
            theirs, ours = source[copy.partition], destination[copy.partition]
            if isinstance(theirs, KafkaError):
                copy.retry(f"source: {theirs}", now)
            elif isinstance(ours, KafkaError):
                copy.retry(f"destination: {ours}", now)
            else:
                copy.source_start, copy.source_end = theirs
                copy.start_offset, copy.end_offset = ours
                found.append(copy)
        limit = asyncio.Semaphore(_COMPARED_AT_ONCE)

        async def compare(copy: PartitionCopy) -> None:
            async with limit:
                await self._compare(copy, now)

        await asyncio.gather(*map(compare, found))
        agreed = [copy for copy in found if copy.problem is None and copy.retry_at <= now]
        await self._destination.prepare(agreed)
        for copy in agreed:
            if copy.problem is None and copy.retry_at <= now:
                copy.position = max(copy.end_offset, copy.source_start)

    async def _compare(self, copy: PartitionCopy, now: float) -> None:
        """Stop a copy whose logs differ; retry if that cannot be found out."""
        end = copy.end_offset
        if end > copy.source_end:
            text = f"the destination ends at {end}, but the source at {copy.source_end}"
            copy.retry(text, now)
            if copy.failures >= _FAILURES_BEHIND_MAX:
                copy.halt(f"{text}: {_DIVERGED}")
            return
        if end <= copy.start_offset or end <= copy.source_start:
            # One of the two has no record to compare.
            return
        try:
            difference = await self._difference(copy)
        except (KafkaError, CorruptBatchError) as error:
            copy.retry(str(error), now)
            return
        if difference is not None:
            copy.halt(f"{difference}: {_DIVERGED}")

    async def _difference(self, copy: PartitionCopy) -> str | None:
        """Return how the last records of the destination differ from those of the source; None if they do not."""
        first = max(copy.end_offset - _COMPARED_OFFSETS, copy.start_offset, copy.source_start)
        ours, theirs = await asyncio.gather(
            self._destination_reader.read(copy.partition, first), self._source.read(copy.partition, first)
        )
        return difference(ours, theirs, first, may_miss=copy.is_compacted)


_DIVERGED: Final = (
    "somebody else has written to one of them. Delete the topic in the destination, and it is copied from its start"
)


def difference(
    ours: Sequence[RecordBatch], theirs: Sequence[RecordBatch], first_offset: int, *, may_miss: bool
) -> str | None:
    """Return the first difference between records of the destination and the source; None if there is none.

    With `may_miss`, a record may be missing in either: compaction removes them at different times. One fetch may have
    returned more than the other.
    """
    here, there = _records(ours, first_offset), _records(theirs, first_offset)
    end_offset = theirs[-1].next_offset if theirs else first_offset
    for offset, record in here.items():
        other = there.get(offset)
        if offset >= end_offset:
            break
        if other is None:
            if not may_miss:
                return f"the record at offset {offset} is not in the source"
        elif other != record:
            return f"the record at offset {offset} is another one in the source"
    return None


def _records(batches: Collection[RecordBatch], first_offset: int) -> dict[int, Record]:
    return {
        record.offset: record
        for batch in batches
        if not batch.is_control
        for record in batch.records()
        if record.offset >= first_offset
    }


async def bounds(cluster: ClusterClient, partitions: Sequence[TopicPartition], isolation: int = 0) -> Offsets:
    """Return where the logs of partitions start and end, for readers of this isolation level."""
    starts, ends = await asyncio.gather(
        look_up_once(cluster, dict.fromkeys(partitions, EARLIEST), 0),
        look_up_once(cluster, dict.fromkeys(partitions, LATEST), isolation),
    )
    found: Offsets = {}
    for partition in partitions:
        start, end = starts[partition], ends[partition]
        if isinstance(start, OffsetAndTimestamp) and isinstance(end, OffsetAndTimestamp):
            found[partition] = (start.offset, end.offset)
        else:
            found[partition] = start if isinstance(start, KafkaError) else end  # type: ignore[assignment]
    return found
