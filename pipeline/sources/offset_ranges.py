"""Ranges of offsets: how those of a query are divided among tasks, and how much of them a trigger takes. No I/O."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from ottla.protocol.identifiers import TopicPartition


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """Offsets of one partition, from `begin` up to, not including, `end`."""

    partition: TopicPartition
    begin: int
    end: int

    def __str__(self) -> str:
        return f"{self.partition} {self.begin}..{self.end}"

    @property
    def size(self) -> int:
        """How many offsets there are; records may be fewer, where the log was compacted."""
        return self.end - self.begin

    def parts(self, count: int) -> list[OffsetRange]:
        """Return as many ranges of nearly the same size, in order."""
        bounds = [self.begin + self.size * index // count for index in range(count + 1)]
        return [OffsetRange(self.partition, begin, end) for begin, end in pairwise(bounds) if begin < end]


def divided(
    ranges: Iterable[OffsetRange], min_partitions: int | None, max_records_per_partition: int | None
) -> list[OffsetRange]:
    """Return the ranges that have offsets, divided so that there are enough of them and none is too large.

    With fewer offsets than `min_partitions` each is a range of its own.
    """
    counts = {
        each: 1 if max_records_per_partition is None else math.ceil(each.size / max_records_per_partition)
        for each in ranges
        if each.size > 0
    }
    # The range with the largest parts is divided once more, as often as needed.
    largest = [(-each.size / count, each) for each, count in counts.items() if count < each.size]
    heapq.heapify(largest)
    missing = (min_partitions or 0) - sum(counts.values())
    while missing > 0 and largest:
        each = heapq.heappop(largest)[1]
        counts[each] += 1
        missing -= 1
        if counts[each] < each.size:
            heapq.heappush(largest, (-each.size / counts[each], each))
    return [part for each in sorted(counts) for part in each.parts(counts[each])]


def limited(
    begin: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], limit: int
) -> dict[TopicPartition, int]:
    """Return ends so that about `limit` offsets lie in between, shared out by how much each partition has.

    A partition that has something gets one offset at least, so that none starves.
    """
    sizes = {partition: end[partition] - begin.get(partition, 0) for partition in end}
    total = sum(size for size in sizes.values() if size > 0)
    if total <= limit:
        return dict(end)
    ends = dict(end)
    for partition, size in sizes.items():
        if size > 0:
            share = max(1, limit * size // total)
            ends[partition] = min(end[partition], begin.get(partition, 0) + share)
    return ends
