"""Deleting old segments: by age, by size, and below the log start.

Only whole segments are deleted, oldest first, and none that reaches above the high watermark. Their files are renamed
to `.deleted` at once and removed after `file.delete.delay.ms`; a start removes those that a crash left behind.

Nothing here needs space on the disk: deleting matters most when the disk is full. No segment is deleted only because
an index says that it is old: unless this process has read the timestamp from the batches, it reads it there first.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from ottla.broker.config import TopicConfig
from ottla.broker.storage.log import Log
from ottla.broker.storage.producers.producer_snapshot import delete_snapshots_below
from ottla.broker.storage.segment import CORRUPT, Segment
from ottla.protocol.errors import CorruptBatchError
from ottla.protocol.primitives import INT64_MAX
from ottla.protocol.records import NO_TIMESTAMP

DELETED_SUFFIX = ".deleted"


class Reason(Enum):
    """Why a segment is deleted."""

    LOG_START = "below the log start offset"
    SIZE = "the log is larger than retention.bytes"
    TIME = "older than retention.ms"


class Candidate(NamedTuple):
    """What retention needs to know about a segment."""

    next_offset: int
    size: int
    largest_timestamp: int
    is_active: bool


def expired(
    candidates: Iterable[Candidate],
    config: TopicConfig,
    log_size: int,
    log_start_offset: int,
    high_watermark: int,
    now_ms: int,
) -> list[Reason]:
    """Return for each expired segment, oldest first, why it is deleted; the list ends at the first that stays."""
    deletes = "delete" in config.cleanup_policy
    surplus = log_size - config.retention_bytes
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


class Kept(NamedTuple):
    """A segment that is still there: why, and when retention will delete it, as far as that can be said."""

    segment: Segment
    largest_timestamp: int
    why: str
    # None if it is never deleted, or if that does not depend on time.
    deleted_ms: int | None


def kept_segments(log: Log) -> list[Kept]:
    """Return why each segment is still there, oldest first: the same rules as `expired`, in words."""
    now_ms = log.clock()
    with log.lock:
        candidates = list(zip(log.segments, candidates_of(log), strict=True))
        config, high_watermark = log.config, log.high_watermark
        reasons = _reasons(log, now_ms)
    found: list[Kept] = []
    # Deleting ends at the first segment that stays, so no segment goes before all older ones.
    older_ms: int | None = now_ms
    for number, (segment, candidate) in enumerate(candidates):
        own_ms: int | None
        if number < len(reasons):
            own_ms, why = now_ms, f"{reasons[number].value}; the next check deletes it"
        elif candidate.is_active:
            own_ms, why = None, "the active segment, which is still written"
        elif candidate.next_offset > high_watermark:
            own_ms, why = None, "not all replicas in sync have it: it reaches above the high watermark"
        else:
            own_ms, why = _kept_by_config(candidate, config, now_ms)
        if number >= len(reasons) and own_ms is not None:
            if older_ms is None:
                own_ms, why = None, f"{why}; an older segment stays longer"
            elif older_ms > own_ms:
                own_ms, why = older_ms, f"{why}; an older segment stays longer, and segments go in order"
        older_ms = own_ms
        found.append(Kept(segment, candidate.largest_timestamp, why, own_ms))
    return found


def _kept_by_config(candidate: Candidate, config: TopicConfig, now_ms: int) -> tuple[int | None, str]:
    if "delete" not in config.cleanup_policy:
        return None, "the topic is compacted, and never deletes segments because of age or size"
    if config.retention_ms < 0:
        if config.retention_bytes < 0:
            return None, "retention.ms and retention.bytes set no limit"
        return None, "the log is not larger than retention.bytes, and retention.ms sets no limit"
    deleted_ms = candidate.largest_timestamp + config.retention_ms + 1
    if candidate.largest_timestamp > now_ms:
        return deleted_ms, "its newest record has a timestamp in the future"
    return deleted_ms, "its newest record is younger than retention.ms"


def delete_old_segments(log: Log) -> list[tuple[Segment, Reason]]:
    """Delete expired segments and return them. If all have expired, the active one is rolled first."""
    now_ms = log.clock()
    while (doubtful := _first_doubtful(log, now_ms)) is not None:
        _confirm_largest_timestamp(log, doubtful)
    gone: list[tuple[Segment, Reason]] = []
    with log.lock:
        reasons = _reasons(log, now_ms)
        if len(reasons) == len(log.segments):
            try:
                log.roll_locked(log.log_end_offset)
            except OSError:
                # There is no space for a new segment until the others are gone.
                reasons.pop()
        for reason in reasons:
            doom(log, log.segments[0])
            gone.append((log.segments.pop(0), reason))
        if gone:
            begin = log.segments[0].base_offset
            log.log_start_offset = max(log.log_start_offset, begin)
            log.recovery_point = max(log.recovery_point, begin)
            # If a full disk prevents this, the next start does it.
            with suppress(OSError):
                log.leader_epochs.truncate_from_start(log.log_start_offset)
            delete_snapshots_below(log.directory, begin)
    return gone


def doom(log: Log, segment: Segment) -> None:
    """Rename a segment's files, to be removed after a delay. The caller holds the lock."""
    segment.discard()
    log.doomed.append((log.clock() + log.config.file_delete_delay_ms, rename_deleted(segment.paths)))


def rename_deleted(paths: Sequence[Path]) -> list[Path]:
    """Rename files to `.deleted`; return the new paths. If the disk is too full for that, remove them at once."""
    renamed = []
    for path in paths:
        try:
            renamed.append(path.rename(path.with_name(path.name + DELETED_SUFFIX)))
        except FileNotFoundError:
            continue
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            path.unlink(missing_ok=True)
    return renamed


def remove_doomed(log: Log, *, at_once: bool = False) -> int:
    """Remove the files whose delay is over, or all `at_once` because the space is needed; return how many."""
    now_ms = INT64_MAX if at_once else log.clock()
    with log.lock:
        due = [paths for deadline_ms, paths in log.doomed if deadline_ms <= now_ms]
        log.doomed = [(deadline_ms, paths) for deadline_ms, paths in log.doomed if deadline_ms > now_ms]
    for paths in due:
        for path in paths:
            path.unlink(missing_ok=True)
    return sum(map(len, due))


def _reasons(log: Log, now_ms: int) -> list[Reason]:
    return expired(_candidates(log), log.config, log.size, log.log_start_offset, log.high_watermark, now_ms)


def candidates_of(log: Log) -> list[Candidate]:
    """Return all segments as retention sees them. The caller holds the lock."""
    return list(_candidates(log))


def _candidates(log: Log) -> Iterator[Candidate]:
    """Yield one segment after the other: few are old, and the ages of the others need not be read."""
    for segment in log.segments:
        yield Candidate(segment.next_offset, segment.size, _age_stamp(segment), segment is log.active)


def _age_stamp(segment: Segment) -> int:
    """Return the largest timestamp; if there is none, or it cannot be read, the file's modification time."""
    with suppress(*CORRUPT):
        if (timestamp := segment.largest_timestamp[0]) != NO_TIMESTAMP:
            return timestamp
    return segment.path.stat().st_mtime_ns // 1_000_000


def _first_doubtful(log: Log, now_ms: int) -> Segment | None:
    """Return the first segment that is old according to its index, and whose batches were not read yet."""
    with log.lock:
        for segment, reason in zip(log.segments, _reasons(log, now_ms), strict=False):
            if reason is Reason.TIME and not segment.is_largest_certain:
                return segment
    return None


def _confirm_largest_timestamp(log: Log, segment: Segment) -> None:
    """Read the largest timestamp from the batches, without the lock if the segment is closed."""
    with log.lock:
        if segment is log.active:
            segment.rebuild_indexes()
            return
        headers = segment.batches_at()
    largest = (NO_TIMESTAMP, segment.base_offset)
    # What lies behind damage cannot be read, and does not keep the segment alive.
    with suppress(CorruptBatchError):
        for batch in headers:
            if batch.max_timestamp > largest[0]:
                largest = (batch.max_timestamp, batch.last_offset)
    with log.lock:
        segment.confirm_largest_timestamp(largest)
