"""Rules about what consumers got: all of it, in order, and nothing that may still go away."""

from __future__ import annotations

from collections.abc import Iterator

from tests.faults.checker.anomaly import Anomaly, Promises, Rule
from tests.faults.checker.history import NO_WATERMARK
from tests.faults.checker.truth import PartitionTruth, Read


def uncommitted_reads(partition: PartitionTruth, promises: Promises) -> Iterator[Anomaly]:
    """A record at or above the high watermark of the answer that brought it."""
    if not promises.are_answers_exact:
        return
    watermark_of = {seen.poll: seen.high_watermark for seen in partition.watermarks}
    for read in partition.reads:
        watermark = watermark_of.get(read.poll, NO_WATERMARK)
        if NO_WATERMARK < watermark <= read.offset:
            detail = f"{read} with high watermark {watermark}"
            yield Anomaly(Rule.UNCOMMITTED_READ, partition.name, detail, partition.surroundings(read.offset))


def lost_positions(partition: PartitionTruth, promises: Promises) -> Iterator[Anomaly]:
    """A consumer that was told, at a position which it had reached by reading, that there is no such offset."""
    for lost in partition.lost_positions:
        detail = f"{lost.worker} was told that {lost.offset} is out of range"
        yield Anomaly(Rule.LOST_POSITION, partition.name, detail, partition.surroundings(lost.offset))


def broken_polls(partition: PartitionTruth, promises: Promises) -> Iterator[Anomaly]:
    """Within one assignment, a position that goes back or stays, or that jumps over what somebody else read.

    A reader with read_committed may jump over what only others read.
    """
    previous: dict[int, Read] = {}
    highest: dict[int, int] = {}
    for read in partition.reads:
        before = previous.get(read.assignment)
        reached = highest.get(read.assignment, read.offset)
        previous[read.assignment] = read
        highest[read.assignment] = max(reached, read.offset)
        if before is None:
            continue
        is_internal = before.poll == read.poll
        if read.offset <= before.offset:
            rule = Rule.INTERNAL_INVERSION if is_internal else Rule.NON_MONOTONIC_POLL
            detail = f"{before}, then {read}"
        elif skipped := partition.read_between(reached, read.offset, is_committed=read.is_committed):
            rule = Rule.INTERNAL_SKIP if is_internal else Rule.POLL_SKIP
            detail = f"{before}, then {read}, over {skipped[:5]}"
        else:
            continue
        yield Anomaly(rule, partition.name, detail, partition.surroundings(read.offset))
