"""Which logs are compacted, and up to which offset: decisions over plain values.

    log start        first dirty             uncleanable start        log end
        |    clean       |        dirty             |     not touched    |

The clean part was read by an earlier compaction; the cleaner checkpoint says where it ends. Compaction works on whole
segments, so it skips a segment that contains an uncleanable offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from ottla.broker.config import TopicConfig
from ottla.broker.config.option import LONG_MAX
from ottla.broker.storage.log import OFFSETS_IN_SEGMENT_MAX, Log
from ottla.protocol.records import NO_TIMESTAMP

Name = TypeVar("Name")


class ClosedSegment(NamedTuple):
    """What the decisions need to know about a closed segment. Timestamps are set only if they matter."""

    base_offset: int
    next_offset: int
    size: int
    first_timestamp: int = NO_TIMESTAMP
    largest_timestamp: int = NO_TIMESTAMP


class Cleanable(NamedTuple):
    """How clean a log is, and what a compaction would look at."""

    first_dirty_offset: int
    # The base offset of a segment. From the first dirty offset up to here, the log is dirty.
    uncleanable_offset: int
    clean_bytes: int
    dirty_bytes: int
    # The earliest timestamp of the dirty segments; NO_TIMESTAMP if none is known.
    earliest_timestamp: int = NO_TIMESTAMP

    @property
    def dirty_ratio(self) -> float:
        """The dirty share of all bytes that can be compacted."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


def first_dirty_offset(checkpoint: int | None, log_start_offset: int, log_end_offset: int) -> int:
    """Return where the dirty part begins; a checkpoint outside the log belongs to another log."""
    if checkpoint is None or not log_start_offset <= checkpoint <= log_end_offset:
        return log_start_offset
    return checkpoint


def uncleanable_offset(
    closed: Sequence[ClosedSegment], active_base_offset: int, last_stable_offset: int, min_lag_ms: int, now_ms: int
) -> int:
    """Return the base offset of the first segment that must not be touched.

    That is the active one, one that is not stable as a whole, or one with a record younger than `min_lag_ms`.
    """
    for segment in closed:
        is_young = min_lag_ms > 0 and segment.largest_timestamp > now_ms - min_lag_ms
        if is_young or segment.next_offset > last_stable_offset:
            return segment.base_offset
    return active_base_offset


def cleanable(closed: Iterable[ClosedSegment], first_dirty: int, uncleanable: int) -> Cleanable:
    """Measure the parts of a log. A partly dirty segment counts as dirty."""
    clean_bytes = dirty_bytes = 0
    earliest = NO_TIMESTAMP
    for segment in closed:
        if segment.base_offset >= uncleanable:
            break
        if segment.next_offset <= first_dirty:
            clean_bytes += segment.size
            continue
        dirty_bytes += segment.size
        if segment.first_timestamp >= 0:
            earliest = segment.first_timestamp if earliest < 0 else min(earliest, segment.first_timestamp)
    return Cleanable(first_dirty, max(first_dirty, uncleanable), clean_bytes, dirty_bytes, earliest)


def is_due(log: Cleanable, min_dirty_ratio: float, max_lag_ms: int, now_ms: int) -> bool:
    """Whether the log should be compacted: it is dirty enough, or a record has waited too long."""
    if not log.dirty_bytes:
        return False
    has_waited = log.earliest_timestamp >= 0 and log.earliest_timestamp < now_ms - max_lag_ms
    return has_waited or log.dirty_ratio > min_dirty_ratio


def filthiest(logs: Mapping[Name, Cleanable]) -> Name | None:
    """Return the log with the largest dirty ratio; the first if there are several."""
    return max(logs, key=lambda name: logs[name].dirty_ratio, default=None)


def groups(
    segments: Sequence[ClosedSegment], index_bytes: Sequence[int], segment_bytes: int, index_bytes_max: int
) -> list[range]:
    """Divide segments into runs that each become one segment, so that segments do not become ever smaller.

    Sizes are those before cleaning: the result is not larger. `index_bytes` has the size of the larger index of each
    segment.
    """
    runs: list[range] = []
    size = index_size = 0
    for number, segment in enumerate(segments):
        run = runs[-1] if runs else None
        if (
            run is not None
            and size + segment.size <= segment_bytes
            and index_size + index_bytes[number] <= index_bytes_max
            and segment.next_offset - 1 - segments[run.start].base_offset <= OFFSETS_IN_SEGMENT_MAX
        ):
            runs[-1] = range(run.start, number + 1)
            size += segment.size
            index_size += index_bytes[number]
        else:
            runs.append(range(number, number + 1))
            size, index_size = segment.size, index_bytes[number]
    return runs


def examine(log: Log, checkpoint: int | None, now_ms: int) -> Cleanable:
    """Measure how clean a log is."""
    stable_offset = log.last_stable_offset
    with log.lock:
        closed = closed_segments(log, log.config)
        first_dirty = first_dirty_offset(checkpoint, log.log_start_offset, log.log_end_offset)
        end = uncleanable_offset(
            closed, log.active.base_offset, stable_offset, log.config.min_compaction_lag_ms, now_ms
        )
    return cleanable(closed, first_dirty, end)


def closed_segments(log: Log, config: TopicConfig) -> list[ClosedSegment]:
    """Return all segments but the active one. The caller holds the lock."""
    wants_first = config.max_compaction_lag_ms < LONG_MAX
    wants_largest = config.min_compaction_lag_ms > 0
    return [
        ClosedSegment(
            segment.base_offset,
            segment.next_offset,
            segment.size,
            segment.first_timestamp if wants_first else NO_TIMESTAMP,
            segment.largest_timestamp[0] if wants_largest else NO_TIMESTAMP,
        )
        for segment in log.segments[:-1]
    ]
