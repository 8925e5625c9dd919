"""Cutting a log: back to an offset, or away altogether.

A follower cuts what its new leader does not have, by leader epoch. What was cut is gone for good, so its files are
removed at once; whoever still sends a slice of them has them open.
"""

from __future__ import annotations

from ottla.broker.storage.log import Log
from ottla.broker.storage.producers.producer_replay import replay_from_snapshot
from ottla.broker.storage.producers.producer_snapshot import delete_snapshots_above
from ottla.broker.storage.segment import Segment


def truncate_to(log: Log, offset: int) -> bool:
    """Drop the batch that holds `offset` and everything behind it; return whether anything was there.

    Never below the log start: such an offset makes the log begin anew there.
    """
    with log.lock:
        if offset >= log.log_end_offset:
            # An epoch that this broker entered as the leader, without appending anything, may be another's by now.
            log.leader_epochs.truncate_from_end(log.log_end_offset)
            return False
        if offset < log.log_start_offset:
            _start_anew(log, offset)
            return True
        log.cuts += 1
        while len(log.segments) > 1 and log.active.base_offset >= offset:
            _drop(log.segments.pop())
        log.active.truncate_to(offset)
        if log.log_end_offset < log.log_start_offset:
            # The log start lay within the batch that was cut.
            _start_anew(log, log.log_start_offset)
            return True
        end = log.log_end_offset
        log.recovery_point = min(log.recovery_point, end)
        log.high_watermark = min(log.high_watermark, end)
        log.active_changed()
        log.leader_epochs.truncate_from_end(end)
        delete_snapshots_above(log.directory, end)
        replay_from_snapshot(log.directory, log.producers, log.segments)
        return True


def truncate_fully_and_start_at(log: Log, offset: int) -> None:
    """Drop everything and begin at `offset`, as a follower does whose leader's log begins later than its own ends."""
    with log.lock:
        _start_anew(log, offset)


def _start_anew(log: Log, offset: int) -> None:
    """Empty the log, from its end: a crash in between leaves its beginning, and the follower will ask again."""
    log.cuts += 1
    while len(log.segments) > 1:
        _drop(log.segments.pop())
    _drop(log.active)
    log.segments[0] = Segment.create(log.directory, offset, log.limits, log.files, log.lock)
    log.log_start_offset = offset
    log.high_watermark = offset
    log.recovery_point = min(log.recovery_point, offset)
    log.active_changed()
    log.leader_epochs.clear()
    log.producers.reset()
    delete_snapshots_above(log.directory, -1)


def _drop(segment: Segment) -> None:
    segment.discard()
    segment.unlink()
