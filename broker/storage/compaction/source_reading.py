"""Reading closed segments for compaction: without the log's lock, at a limited rate, and until it is stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from enum import Enum

from ottla.broker.storage.compaction.cleaned_transactions import aborted_among
from ottla.broker.storage.compaction.cleaner_throttle import CleanerThrottle
from ottla.broker.storage.log import Log
from ottla.broker.storage.producers.aborted_transactions import AbortedIndexEntry
from ottla.broker.storage.producers.producer_replay import check_transaction_index
from ottla.broker.storage.segment import Segment
from ottla.protocol.errors import CorruptBatchError
from ottla.protocol.records import RecordBatch

# Shorter pauses are added up.
_PAUSE_SECONDS_MIN = 0.005
# A stop is noticed within this time.
_PAUSE_SECONDS_MAX = 0.1


class CompactionOutcome(Enum):
    """How a compaction ended."""

    COMPLETE = "complete"
    STOPPED = "stopped"
    CHANGED = "the log changed meanwhile"


class AbandonedError(Exception):
    """The compaction was stopped, or the log has changed."""

    def __init__(self, outcome: CompactionOutcome) -> None:
        super().__init__(outcome.value)
        self.outcome = outcome


class SourceReader:
    """Reads the segments of one log, as long as the log still has them."""

    def __init__(
        self,
        log: Log,
        buffer_bytes: int,
        throttle: CleanerThrottle | None = None,
        is_stopped: Callable[[], bool] = lambda: False,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        self._log = log
        self._cuts = log.cuts
        self._buffer_bytes = buffer_bytes
        self._throttle = throttle
        self._is_stopped = is_stopped
        self._wait = wait

    @property
    def was_cut(self) -> bool:
        """Whether the log was cut back since the reader was made."""
        return self._log.cuts != self._cuts

    def index_of(self, segments: list[Segment]) -> int:
        """Return the index of closed segments in the log, or raise AbandonedError. The caller holds the lock."""
        log = self._log
        at = log.index_of(segments[0].base_offset)
        behind = at + len(segments)
        if self.was_cut or log.segments[at:behind] != segments or behind >= len(log.segments):
            raise AbandonedError(CompactionOutcome.CHANGED)
        return at

    def modified_ns(self, segment: Segment) -> int:
        """Return when the log file of a segment was last written."""
        with self._log.lock:
            self.index_of([segment])
            return segment.path.stat().st_mtime_ns

    def aborted_in(self, segment: Segment) -> list[AbortedIndexEntry]:
        """Return the aborted transactions that began before the end of a segment and end in it or later."""
        log = self._log
        with log.lock:
            later = log.segments[self.index_of([segment]) :]
            for other in later:
                if not other.is_transaction_index_sound:
                    check_transaction_index(log.directory, log.segments, other)
            return aborted_among(later, segment.next_offset)

    def batches(self, segment: Segment, from_offset: int = 0) -> Iterator[RecordBatch]:
        """Read a segment from the batch that holds an offset on; check CRCs and the order of offsets."""
        with self._log.lock:
            self.index_of([segment])
            first = segment.find(from_offset) if from_offset > segment.base_offset else None
            batches = segment.lend_batches(0 if first is None else first.position, self._buffer_bytes)
        next_offset = segment.base_offset
        for _, batch in batches:
            batch.check()
            if not next_offset <= batch.base_offset <= batch.last_offset < segment.next_offset:
                raise CorruptBatchError(f"{segment.path} has offset {batch.base_offset} out of order")
            next_offset = batch.next_offset
            self._check_stopped()
            yield batch
            self.moved(batch.size)

    def moved(self, byte_count: int) -> None:
        """Pause as long as reading or writing these bytes should have taken."""
        seconds = self._throttle.pause_for(byte_count) if self._throttle is not None else 0.0
        while seconds >= _PAUSE_SECONDS_MIN:
            self._check_stopped()
            self._wait(min(seconds, _PAUSE_SECONDS_MAX))
            seconds -= _PAUSE_SECONDS_MAX

    def _check_stopped(self) -> None:
        if self._is_stopped():
            raise AbandonedError(CompactionOutcome.STOPPED)
