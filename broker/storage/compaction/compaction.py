"""Compaction of one log: it keeps the last record of every key.

    1. Map: read the dirty segments, and note the last offset of each key, until the map is full.
    2. Rewrite: copy all segments up to the last mapped offset, from the log start on, without superseded records
       (batch_cleaning.py). Neighbours that fit together become one segment.
    3. Exchange: replace the old segments by the new ones (swap.py).

If the map is full, the dirty part ends there, even within a segment or a batch; the next compaction continues from that
offset. So a log with more keys than fit into the map is compacted in several rounds.

The log's lock is held to open a segment and to exchange, but not while batches are read and written: closed segments do
not change, and slices stay readable. If a segment was deleted or the log was cut meanwhile, the exchange notices: the
new files are dropped and the old ones stay. Segments that were exchanged before stay in place.

Two compactions of one log must not run at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from ottla.broker.config import BrokerConfig
from ottla.broker.storage.checkpoint import sync_directory
from ottla.broker.storage.compaction.batch_cleaning import BatchCleaner, LastOfProducer
from ottla.broker.storage.compaction.cleanable import ClosedSegment, examine, groups
from ottla.broker.storage.compaction.cleaned_segment import CleanedSegment
from ottla.broker.storage.compaction.cleaned_transactions import CleanedTransactions
from ottla.broker.storage.compaction.cleaner_throttle import CleanerThrottle
from ottla.broker.storage.compaction.offset_map import OffsetMap
from ottla.broker.storage.compaction.source_reading import AbandonedError, CompactionOutcome, SourceReader
from ottla.broker.storage.compaction.swap import commit_cleaned, put_in_place
from ottla.broker.storage.directory_files import note_holes
from ottla.broker.storage.log import Log
from ottla.broker.storage.maintenance.retention import doom
from ottla.broker.storage.producers.producer_snapshot import snapshot_path
from ottla.broker.storage.segment import Segment
from ottla.protocol.errors import CorruptBatchError
from ottla.protocol.identifiers import TopicPartition

__all__ = ["CleanerLimits", "CompactionOutcome", "CompactionReport", "compact"]

_MAP_BYTES_MAX = 2**31 - 1
_BUFFER_BYTES_MIN = 64 * 1024


class CleanerLimits(NamedTuple):
    """What the broker's options allow one cleaner thread."""

    map_bytes: int
    load_factor: float
    buffer_bytes: int

    @classmethod
    def of(cls, config: BrokerConfig) -> CleanerLimits:
        """Divide the memory that the options allow among the threads, and the buffer between reading and writing."""
        threads = max(config.log_cleaner_threads, 1)
        return cls(
            min(config.log_cleaner_dedupe_buffer_size // threads, _MAP_BYTES_MAX),
            config.log_cleaner_io_buffer_load_factor,
            max(config.log_cleaner_io_buffer_size // threads // 2, _BUFFER_BYTES_MIN),
        )


class CompactionReport(Struct, frozen=True, kw_only=True):
    """The result of a compaction. `cleaned_up_to` is the new cleaner offset of the log, however it ended."""

    partition: TopicPartition
    outcome: CompactionOutcome = CompactionOutcome.COMPLETE
    first_dirty_offset: int = 0
    cleaned_up_to: int = 0
    # What was read for the map, and the size of the map.
    bytes_mapped: int = 0
    records_mapped: int = 0
    map_entries: int = 0
    map_bytes: int = 0
    # What was rewritten. Segments that turned out to be clean count too.
    bytes_read: int = 0
    records_read: int = 0
    bytes_written: int = 0
    records_written: int = 0
    segments_before: int = 0
    segments_after: int = 0
    duration_ms: int = 0


def compact(
    log: Log,
    checkpoint: int | None,
    limits: CleanerLimits,
    *,
    throttle: CleanerThrottle | None = None,
    is_stopped: Callable[[], bool] = lambda: False,
    wait: Callable[[float], object] = time.sleep,
) -> CompactionReport:
    """Compact a log from the offset `checkpoint`, where the last compaction ended; None if there was none.

    `is_stopped` is called at every batch and during pauses. Raises CorruptBatchError for a damaged segment,
    StorageError if the map is too small for a single key, and OSError. The log is unchanged then, except after an
    OSError in the exchange: the next start completes that exchange.
    """
    reader = SourceReader(log, limits.buffer_bytes, throttle, is_stopped, wait)
    compaction = _Compaction(log, limits, reader)
    begin = time.monotonic()
    outcome = CompactionOutcome.COMPLETE
    try:
        compaction.run(checkpoint)
    except AbandonedError as abandoned:
        outcome = abandoned.outcome
    except (OSError, CorruptBatchError):
        if not reader.was_cut:
            raise
        outcome = CompactionOutcome.CHANGED
    duration_ms = round((time.monotonic() - begin) * 1000)
    return replace(compaction.report, outcome=outcome, duration_ms=duration_ms)


class _Compaction:
    """One compaction in progress."""

    def __init__(self, log: Log, limits: CleanerLimits, reader: SourceReader) -> None:
        self.report = CompactionReport(partition=log.partition)
        self._log = log
        self._limits = limits
        self._reader = reader

    def run(self, checkpoint: int | None) -> None:
        """Do all of it."""
        log = self._log
        now_ms = log.clock()
        state = examine(log, checkpoint, now_ms)
        first_dirty = state.first_dirty_offset
        self.report = replace(self.report, first_dirty_offset=first_dirty, cleaned_up_to=first_dirty)
        with log.lock:
            segments = [segment for segment in log.segments[:-1] if segment.base_offset < state.uncleanable_offset]
            producers = {
                entry.producer_id: LastOfProducer(entry.last_offset, entry.epoch) for entry in log.producers.entries()
            }
        dirty = [segment for segment in segments if segment.next_offset > first_dirty]
        if not dirty:
            return
        offsets, mapped_up_to = self._mapped(dirty, first_dirty)
        transactions = CleanedTransactions()
        cleaner = BatchCleaner(offsets, mapped_up_to, transactions, producers, now_ms, log.config.delete_retention_ms)
        for group in self._groups([segment for segment in segments if segment.base_offset < mapped_up_to]):
            self._rewrite(group, transactions, cleaner)
        if self._reader.was_cut:
            # The records below `mapped_up_to` may not be those that were mapped.
            raise AbandonedError(CompactionOutcome.CHANGED)
        self.report = replace(self.report, cleaned_up_to=mapped_up_to)

    def _mapped(self, dirty: Sequence[Segment], first_dirty: int) -> tuple[OffsetMap, int]:
        """Return the last offset of each key from the first dirty offset on, and the offset at which that ends."""
        expected = sum(segment.next_offset - max(segment.base_offset, first_dirty) for segment in dirty)
        offsets = OffsetMap(self._limits.map_bytes, self._limits.load_factor, expected)
        mapped_up_to = first_dirty
        for segment in dirty:
            mapped_up_to = self._map_segment(segment, first_dirty, offsets)
            if mapped_up_to < segment.next_offset:
                break
        self.report = replace(self.report, map_entries=len(offsets), map_bytes=offsets.memory_bytes)
        return offsets, mapped_up_to

    def _map_segment(self, segment: Segment, first_dirty: int, offsets: OffsetMap) -> int:
        """Map the keys of a segment; return the offset of the first record that did not fit, or its end offset."""
        put = offsets.put
        transactions = CleanedTransactions()
        transactions.expect(self._reader.aborted_in(segment))
        bytes_mapped = records_mapped = 0
        for batch in self._reader.batches(segment, first_dirty):
            bytes_mapped += batch.size
            records_mapped += batch.record_count
            if batch.is_control:
                transactions.end(batch)
            elif not transactions.is_aborted(batch):
                for record in batch.records():
                    key, offset = record.key, record.offset
                    if key is not None and offset >= first_dirty and not put(key, offset):
                        return offset
        self.report = replace(
            self.report,
            bytes_mapped=self.report.bytes_mapped + bytes_mapped,
            records_mapped=self.report.records_mapped + records_mapped,
        )
        return segment.next_offset

    def _groups(self, segments: list[Segment]) -> list[list[Segment]]:
        facts = [ClosedSegment(segment.base_offset, segment.next_offset, segment.size) for segment in segments]
        index_bytes = [max(map(_size_of, segment.paths[1:3])) for segment in segments]
        config = self._log.config
        runs = groups(facts, index_bytes, config.segment_bytes, config.segment_index_bytes)
        return [segments[run.start : run.stop] for run in runs]

    def _rewrite(self, sources: list[Segment], transactions: CleanedTransactions, cleaner: BatchCleaner) -> None:
        """Write one segment from several, and replace them by it."""
        log = self._log
        cleaned = CleanedSegment(log.directory, sources[0].base_offset, log.limits, self._limits.buffer_bytes)
        bytes_read = records_read = 0
        is_same = len(sources) == 1
        try:
            for source in sources:
                transactions.expect(self._reader.aborted_in(source))
                for batch in self._reader.batches(source):
                    bytes_read += batch.size
                    records_read += batch.record_count
                    if batch.is_control:
                        is_spent, aborted = transactions.end(batch)
                        kept = cleaner.marker(batch, is_spent=is_spent)
                        if aborted is not None:
                            cleaned.note_aborted(aborted)
                    else:
                        kept = cleaner.data(batch)
                    is_same = is_same and kept is batch.view
                    if kept is not None:
                        cleaned.append(kept)
                        self._reader.moved(len(kept))
            if not is_same:
                cleaned.finish(self._reader.modified_ns(sources[-1]))
                self._exchange(cleaned, sources)
        finally:
            # After an exchange there is nothing left to discard.
            cleaned.discard()
        report = self.report
        self.report = replace(
            report,
            bytes_read=report.bytes_read + bytes_read,
            records_read=report.records_read + records_read,
            bytes_written=report.bytes_written + cleaned.size,
            records_written=cleaner.records_kept,
            segments_before=report.segments_before + len(sources),
            segments_after=report.segments_after + 1,
        )

    def _exchange(self, cleaned: CleanedSegment, sources: list[Segment]) -> None:
        log = self._log
        base_offset = cleaned.base_offset
        segment = Segment(log.directory, base_offset, log.limits, log.files, log.lock)
        segment.size = cleaned.size
        segment.next_offset = sources[-1].next_offset
        segment.has_aborted = cleaned.has_aborted
        segment.is_transaction_index_sound = True
        segment.confirm_largest_timestamp(cleaned.largest_timestamp)
        with log.lock:
            at = self._reader.index_of(sources)
            # This waits for the disk with the lock held, once. If the new names were committed before the lock is
            # taken, a crash could bring back what was cut or deleted in between.
            note_holes(self._log.directory)
            commit_cleaned(log.directory, base_offset)
            log.segments[at : at + len(sources)] = [segment]
            for source in sources:
                doom(log, source)
                if source.base_offset != base_offset:
                    # No segment begins at this offset any more, so its snapshot is not needed.
                    snapshot_path(log.directory, source.base_offset).unlink(missing_ok=True)
            put_in_place(log.directory, base_offset)
        sync_directory(log.directory)


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
