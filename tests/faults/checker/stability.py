"""Rules about the last stable offset: readers with read_committed stop there, and it goes forward up to the end.

It is the smaller of the high watermark and the first offset of a transaction without a marker below the high
watermark. So it depends on nothing but the records below the high watermark, which never change. Two answers with the
same high watermark have the same last stable offset, whoever gave them and when, and one with a higher watermark has no
lower one. A new leader may show less than its predecessor, but only while its high watermark is less, too. How far it
falls then has no other limit: the marker of a long transaction may be just what the new high watermark leaves out.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.faults.checker.anomaly import Anomaly, Promises, Rule
from tests.faults.checker.brokers import going_back
from tests.faults.checker.history import NO_OFFSET
from tests.faults.checker.truth import PartitionTruth, SeenWatermark


def unstable_reads(partition: PartitionTruth, promises: Promises) -> Iterator[Anomaly]:
    """A record that came with read_committed, at or above the last stable offset of the answer that brought it."""
    if not promises.are_answers_exact:
        return
    stable_of = {seen.poll: seen.last_stable_offset for seen in _known(partition)}
    for read in partition.reads:
        stable = stable_of.get(read.poll, NO_OFFSET)
        if read.is_committed and NO_OFFSET < stable <= read.offset:
            detail = f"{read} with read_committed and last stable offset {stable}"
            yield Anomaly(Rule.UNSTABLE_READ, partition.name, detail, partition.surroundings(read.offset))


def stable_going_back(partition: PartitionTruth, promises: Promises) -> Iterator[Anomaly]:
    """A last stable offset below an earlier one of the same leader in the same epoch, or of the same high watermark.

    Where an answer is not exact, its two offsets are of two moments, and only the first comparison is sound.
    """
    known = _known(partition)
    found: set[SeenWatermark] = set()
    for before, seen in going_back(known, lambda one: one.last_stable_offset):
        found.add(seen)
        yield _gone_back(partition, before, seen)
    if not promises.are_answers_exact:
        return
    most: SeenWatermark | None = None
    for seen in sorted(known, key=lambda one: (one.high_watermark, -one.last_stable_offset)):
        if most is None or seen.last_stable_offset >= most.last_stable_offset:
            most = seen
        elif seen not in found:
            yield _gone_back(partition, most, seen)


def stable_staying_behind(partition: PartitionTruth, promises: Promises) -> Iterator[Anomaly]:
    """A last stable offset that has not reached the high watermark in the end, though all transactions have ended."""
    known = _known(partition)
    if known and promises.is_committed_drained and known[-1].last_stable_offset < known[-1].high_watermark:
        detail = f"{known[-1]}, in the end"
        around = partition.surroundings(known[-1].last_stable_offset)
        yield Anomaly(Rule.STABLE_BEHIND, partition.name, detail, around)


def _known(partition: PartitionTruth) -> list[SeenWatermark]:
    return [seen for seen in partition.watermarks if seen.last_stable_offset != NO_OFFSET]


def _gone_back(partition: PartitionTruth, before: SeenWatermark, after: SeenWatermark) -> Anomaly:
    around = partition.surroundings(after.last_stable_offset)
    return Anomaly(Rule.STABLE_BACK, partition.name, f"{before}; but {after}", around)
