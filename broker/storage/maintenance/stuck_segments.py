"""Segments that retention or compaction would have removed, if something did not hold them back.

The oldest one of a log is enough: segments are removed in order, so it holds back the ones behind it as well.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

from ottla.broker.storage.log import Log
from ottla.broker.storage.maintenance.retention import candidates_of, expired
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.primitives import INT64_MAX

# Clocks of producers may be ahead by as much as this.
_CLOCK_SKEW_MS: Final = 60 * 60 * 1000


class Holder(Enum):
    """What holds a segment back."""

    FUTURE_TIMESTAMP = "future timestamp"
    LAGGING_FOLLOWER = "lagging follower"
    OPEN_TRANSACTION = "open transaction"


class StuckSegment(NamedTuple):
    """The oldest segment of a log that is held back."""

    partition: TopicPartition
    path: Path
    base_offset: int
    next_offset: int
    # Of this segment, and of those behind it that would go with it.
    held_bytes: int
    holder: Holder
    # FUTURE_TIMESTAMP: the largest timestamp of the segment. OPEN_TRANSACTION: the last stable offset.
    value: int = -1


def stuck_segment(log: Log, now_ms: int) -> StuckSegment | None:
    """Return the oldest segment of a log that is held back; None if there is none."""
    stable_offset = log.last_stable_offset
    with log.lock:
        if "delete" in log.config.cleanup_policy and (found := _held_from_deletion(log, now_ms)) is not None:
            return found
        if "compact" in log.config.cleanup_policy and stable_offset < log.high_watermark:
            return _held_from_compaction(log, stable_offset)
    return None


def _held_from_deletion(log: Log, now_ms: int) -> StuckSegment | None:
    """Return the first segment that stays, if it stays for a reason other than the options. The caller holds the lock.

    The active segment does not count: what is written to it is not old.
    """
    config = log.config
    candidates = candidates_of(log)
    rules = (config, log.size, log.log_start_offset)
    deletable = len(expired(candidates, *rules, log.high_watermark, now_ms))
    if deletable >= len(candidates) - 1:
        return None
    first = candidates[deletable]
    # The limit of the high watermark is the only one left out.
    overdue = expired(candidates, *rules, INT64_MAX, now_ms)[deletable:]
    if overdue and first.next_offset > log.high_watermark:
        held_bytes = sum(each.size for each in candidates[deletable : deletable + len(overdue)])
        return _stuck(log, deletable, held_bytes, Holder.LAGGING_FOLLOWER)
    if config.retention_ms >= 0 and first.largest_timestamp > now_ms + _CLOCK_SKEW_MS:
        behind = candidates[deletable + 1 : -1]
        held_bytes = first.size + sum(
            each.size for each in behind if now_ms - each.largest_timestamp > config.retention_ms
        )
        return _stuck(log, deletable, held_bytes, Holder.FUTURE_TIMESTAMP, first.largest_timestamp)
    return None


def _held_from_compaction(log: Log, stable_offset: int) -> StuckSegment | None:
    """Return the first closed segment that is not stable as a whole. The caller holds the lock."""
    for number, segment in enumerate(log.segments[:-1]):
        if segment.next_offset > stable_offset:
            held_bytes = sum(each.size for each in log.segments[number:-1])
            return _stuck(log, number, held_bytes, Holder.OPEN_TRANSACTION, stable_offset)
    return None


def _stuck(log: Log, number: int, held_bytes: int, holder: Holder, value: int = -1) -> StuckSegment:
    segment = log.segments[number]
    return StuckSegment(
        log.partition, segment.path, segment.base_offset, segment.next_offset, held_bytes, holder, value
    )
