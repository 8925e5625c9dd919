"""Cutting a log: back to an offset, or away altogether.

A follower cuts what its new leader does not have, by leader epoch. What was cut is gone for good, so its files are
removed at once; whoever still sends a slice of them has them open.
"""

from __future__ import annotations

from ottla.broker.storage.log import Log
from ottla.broker.storage.producer_snapshot import delete_snapshots_above, delete_snapshots_below, load_newest_snapshot
from ottla.broker.storage.producers import Producers
from ottla.broker.storage.segment import Segment


def truncate_to(log: Log, offset: int) -> bool:
    """Drop the batch that holds `offset` and everything behind it; return whether anything was there.

    Never below the log start: such an offset makes the log begin anew there.
    """
    with log.lock:
        if offset >= log.log_end_offset:
            return False
        if offset < log.log_start_offset:
            _start_anew(log, offset)
            return True
        log.cuts += 1
        while len(log.segments) > 1 and log.active.base_offset >= offset:
            _drop(log.segments.pop())
        log.active.truncate_to(offset)
        _after_cut(log)
        return True


def truncate_fully_and_start_at(log: Log, offset: int) -> None:
    """Drop everything and begin at `offset`, as a follower does whose leader's log begins later than its own ends."""
    with log.lock:
        _start_anew(log, offset)


def _start_anew(log: Log, offset: int) -> None:
    log.cuts += 1
    # The new segment first: a crash in between leaves the old log, or an empty one that recovery knows how to take.
    while len(log.segments) > 1:
        _drop(log.segments.pop())
    only = log.segments[0]
    only.close()
    if only.base_offset != offset:
        _drop(only)
    log.segments[0] = Segment.create(log.directory, offset, log.limits, log.files, log.lock)
    log.log_start_offset = offset
    log.high_watermark = offset
    log.recovery_point = min(log.recovery_point, offset)
    log.leader_epochs.clear()
    log.producers.reset()
    delete_snapshots_above(log.directory, -1)


def _drop(segment: Segment) -> None:
    segment.close()
    segment.unlink()


def _after_cut(log: Log) -> None:
    end = log.log_end_offset
    log.recovery_point = min(log.recovery_point, end)
    log.high_watermark = min(log.high_watermark, end)
    log.leader_epochs.truncate_from_end(end)
    delete_snapshots_above(log.directory, end)
    rebuild_producers(log.producers, log)


def rebuild_producers(producers: Producers, log: Log) -> None:
    """Bring the producers' state to the end of the log: the newest snapshot, and the batches since."""
    snapshot = load_newest_snapshot(log.directory, log.log_end_offset)
    if snapshot is None:
        producers.reset()
        begin = log.log_start_offset
    else:
        producers.restore(snapshot)
        begin = max(snapshot.offset, log.log_start_offset)
    replay(producers, log.segments[log.index_of(begin) :], begin)
    delete_snapshots_below(log.directory, log.segments[0].base_offset)


def replay(producers: Producers, segments: list[Segment], begin: int) -> None:
    """Note every batch from `begin` on; the index of aborted transactions is complete already."""
    for segment in segments:
        if segment.next_offset <= begin:
            continue  # as after a clean stop: the file need not even be opened
        first = segment.find(begin)
        for _, batch in segment.read_batches(first.position) if first is not None else ():
            producers.update(batch, batch.base_offset)
