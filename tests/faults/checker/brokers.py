"""Rules about the brokers: who leads, how far, and what each of them has on disk."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from tests.faults.checker.anomaly import Anomaly, Promises, Rule
from tests.faults.checker.history import NO_EPOCH, NO_WATERMARK
from tests.faults.checker.truth import PartitionTruth, SeenWatermark


def watermarks_going_back(partition: PartitionTruth, promises: Promises) -> Iterator[Anomaly]:
    """A high watermark below one that the same leader showed in the same epoch, or that ends below the highest.

    A new leader may show less for a moment: it has what is committed, and learns with the first fetches of its
    followers how far that goes.
    """
    known = [seen for seen in partition.watermarks if seen.high_watermark > NO_WATERMARK]
    for before, seen in going_back(known, lambda one: one.high_watermark):
        detail = f"{before.high_watermark}, then {seen.high_watermark}, at broker {seen.broker}"
        around = partition.surroundings(seen.high_watermark)
        yield Anomaly(Rule.WATERMARK_BACK, partition.name, f"{detail} in epoch {seen.leader_epoch}", around)
    if known and promises.is_drained:
        last, most = known[-1], max(seen.high_watermark for seen in known)
        reached = max(seen.high_watermark for seen in known if seen.term == last.term)
        if last.high_watermark == reached < most:
            detail = f"{most} once, {last.high_watermark} in the end, at broker {last.broker}"
            yield Anomaly(Rule.WATERMARK_BACK, partition.name, detail, partition.surroundings(last.high_watermark))


def going_back(
    watermarks: Sequence[SeenWatermark], value: Callable[[SeenWatermark], int]
) -> Iterator[tuple[SeenWatermark, SeenWatermark]]:
    """Yield what a leader showed although it had shown more, in the same epoch, before anybody asked it for this."""
    terms: dict[tuple[int, int], list[SeenWatermark]] = defaultdict(list)
    for seen in watermarks:
        terms[seen.term].append(seen)
    for shown in terms.values():
        told = sorted(shown, key=lambda one: one.time_ns)
        most: SeenWatermark | None = None
        position = 0
        for seen in sorted(shown, key=lambda one: one.invoked_ns):
            while told[position].time_ns < seen.invoked_ns:
                if most is None or value(told[position]) > value(most):
                    most = told[position]
                position += 1
            if most is not None and value(seen) < value(most):
                yield most, seen


def leaders_in_one_epoch(partition: PartitionTruth, promises: Promises) -> Iterator[Anomaly]:
    """Two brokers that led in one epoch."""
    leaders: dict[int, set[int]] = {}
    for start in partition.leader_starts:
        leaders.setdefault(start.leader_epoch, set()).add(start.broker)
    for seen in partition.watermarks:
        if seen.leader_epoch != NO_EPOCH:
            leaders.setdefault(seen.leader_epoch, set()).add(seen.broker)
    for epoch, brokers in sorted(leaders.items()):
        if len(brokers) > 1:
            yield Anomaly(Rule.TWO_LEADERS, partition.name, f"{sorted(brokers)} in epoch {epoch}")


def epochs_going_back(partition: PartitionTruth, promises: Promises) -> Iterator[Anomaly]:
    """A leader epoch that is less than an earlier one: in ZooKeeper by time, in a log by offset."""
    for before, after in pairwise(partition.isr_changes):
        if after.leader_epoch < before.leader_epoch or after.version < before.version:
            detail = f"ZooKeeper had epoch {before.leader_epoch}, then {after.leader_epoch}"
            yield Anomaly(Rule.EPOCH_BACK, partition.name, detail)
    epochs = {read.offset: read.leader_epoch for read in partition.reads if read.leader_epoch != NO_EPOCH}
    for (offset, epoch), (next_offset, next_epoch) in pairwise(sorted(epochs.items())):
        if next_epoch < epoch:
            detail = f"{epoch} at {offset}, then {next_epoch} at {next_offset}"
            yield Anomaly(Rule.EPOCH_BACK, partition.name, detail, partition.surroundings(next_offset))
    for replica in partition.replica_logs:
        for batch, following in pairwise(replica.batches):
            if following.leader_epoch < batch.leader_epoch:
                detail = f"{batch.leader_epoch}, then {following.leader_epoch} at {following.base_offset} on disk"
                yield Anomaly(Rule.EPOCH_BACK, partition.name, f"{detail} of broker {replica.broker}")


def divergences(partition: PartitionTruth, promises: Promises) -> Iterator[Anomaly]:
    """Replicas whose batches below the high watermark are not the same bytes at the same offsets.

    Where one starts later than another because old segments were deleted, only what both have is compared.
    """
    for one, other in pairwise(partition.replica_logs):
        if not one.batches or not other.batches:
            if one.batches or other.batches:
                detail = f"only one of the brokers {one.broker} and {other.broker} has records"
                yield Anomaly(Rule.DIVERGENCE, partition.name, detail)
            continue
        start = max(one.batches[0].base_offset, other.batches[0].base_offset)
        mine, theirs = ([batch for batch in log.batches if batch.base_offset >= start] for log in (one, other))
        different = next((pair for pair in zip(mine, theirs, strict=False) if pair[0] != pair[1]), None)
        if different is not None:
            offset = min(batch.base_offset for batch in different)
            detail = f"broker {one.broker} has {different[0]}, broker {other.broker} has {different[1]}"
        elif len(mine) != len(theirs):
            longer, shorter = (one, other) if len(mine) > len(theirs) else (other, one)
            offset = shorter.batches[-1].last_offset
            detail = f"broker {shorter.broker} ends at {offset}, broker {longer.broker} goes on"
        else:
            continue
        yield Anomaly(Rule.DIVERGENCE, partition.name, detail, partition.surroundings(offset))
