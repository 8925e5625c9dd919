"""Deleting old segments: by age, by size, and below the log start.

Only whole segments go, oldest first, and none that holds anything above the high watermark. Their files are
renamed to `.deleted` at once and removed after `file.delete.delay.ms`; a start removes what a crash left of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from ottla.broker.config import TopicConfig
from ottla.broker.storage.log import Log
from ottla.broker.storage.producer_snapshot import delete_snapshots_below
from ottla.broker.storage.segment import Segment
from ottla.protocol.records import NO_TIMESTAMP

DELETED_SUFFIX = ".deleted"


class Reason(Enum):
    """Why a segment goes."""

    LOG_START = "below the log start offset"
    SIZE = "the log is larger than retention.bytes"
    TIME = "older than retention.ms"


class Candidate(NamedTuple):
    """What retention wants to know of a segment."""

    next_offset: int
    size: int
    largest_timestamp: int
    is_active: bool


def expired(
    candidates: Sequence[Candidate], config: TopicConfig, log_start_offset: int, high_watermark: int, now_ms: int
) -> list[Reason]:
    """Return why each of the first segments goes; the first that stays ends the list."""
    deletes = "delete" in config.cleanup_policy
    surplus = sum(candidate.size for candidate in candidates) - config.retention_bytes
    reasons: list[Reason] = []
    for candidate in candidates:
        if candidate.next_offset > high_watermark or (candidate.is_active and not candidate.size):
            break
        if candidate.next_offset <= log_start_offset and not candidate.is_active:
            reasons.append(Reason.LOG_START)
        elif deletes and config.retention_bytes >= 0 and surplus >= candidate.size:
            reasons.append(Reason.SIZE)
        elif deletes and 0 <= config.retention_ms < now_ms - candidate.largest_timestamp:
            reasons.append(Reason.TIME)
        else:
            break
        surplus -= candidate.size
    return reasons


def delete_old_segments(log: Log) -> list[tuple[Segment, Reason]]:
    """Delete what has expired; return the segments that went. When all have, the active one is rolled first."""
    now_ms = log.clock()
    with log.lock:
        reasons = expired(_candidates(log), log.config, log.log_start_offset, log.high_watermark, now_ms)
        if not reasons:
            return []
        if len(reasons) == len(log.segments):
            log.roll_locked(log.log_end_offset)
        gone = log.segments[: len(reasons)]
        del log.segments[: len(reasons)]
        log.log_start_offset = max(log.log_start_offset, log.segments[0].base_offset)
        log.recovery_point = max(log.recovery_point, log.segments[0].base_offset)
        log.leader_epochs.truncate_from_start(log.log_start_offset)
        for segment in gone:
            doom(log, segment)
        delete_snapshots_below(log.directory, log.segments[0].base_offset)
        return list(zip(gone, reasons, strict=True))


def doom(log: Log, segment: Segment) -> None:
    """Take a segment's files out of the log, to be removed after a delay. The caller holds the lock."""
    segment.close()
    log.doomed.append((log.clock() + log.config.file_delete_delay_ms, rename_deleted(segment.paths)))


def rename_deleted(paths: Sequence[Path]) -> list[Path]:
    """Mark files as deleted; return their new paths."""
    renamed = []
    for path in paths:
        if path.exists():
            renamed.append(path.rename(path.with_name(path.name + DELETED_SUFFIX)))
    return renamed


def remove_doomed(log: Log) -> int:
    """Remove the files whose delay is over; return how many."""
    now_ms = log.clock()
    with log.lock:
        due = [paths for deadline_ms, paths in log.doomed if deadline_ms <= now_ms]
        log.doomed = [(deadline_ms, paths) for deadline_ms, paths in log.doomed if deadline_ms > now_ms]
    for paths in due:
        for path in paths:
            path.unlink(missing_ok=True)
    return sum(map(len, due))


def _candidates(log: Log) -> list[Candidate]:
    return [
        Candidate(segment.next_offset, segment.size, _age_stamp(segment), segment is log.active)
        for segment in log.segments
    ]


def _age_stamp(segment: Segment) -> int:
    """The largest timestamp; where no record has one, when the file was last written."""
    timestamp = segment.largest_timestamp[0]
    return timestamp if timestamp != NO_TIMESTAMP else segment.path.stat().st_mtime_ns // 1_000_000
