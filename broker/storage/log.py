"""The log of one partition: segments in a row, of which the last is written.

Offsets rise through the log, `log_start_offset` <= `high_watermark` <= `log_end_offset`. Everything below the
recovery point has been forced to disk. Beside the segments the log keeps the leader epochs and the state of the
producers, both of which can be had again from the batches.

One lock, the log's own, protects all of it; public methods take it. Nothing waits for a disk flush while holding
it. Slices that `read` hands out need no lock and stay valid when segments are rolled, deleted or replaced.
"""

from __future__ import annotations

import random
import struct
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, Protocol

from ottla.broker.config import TopicConfig
from ottla.broker.storage.aborted_transactions import aborted_within
from ottla.broker.storage.file_slice import FileSlice
from ottla.broker.storage.leader_epochs import LeaderEpochs
from ottla.broker.storage.open_files import OpenFiles
from ottla.broker.storage.producer_snapshot import ProducerSnapshot, write_snapshot
from ottla.broker.storage.producers import Producers
from ottla.broker.storage.segment import Limits, Segment
from ottla.broker.storage.validation import AppendRules
from ottla.protocol.errors import CorruptBatchError, ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.records import NO_TIMESTAMP, TIMESTAMP_TYPE_BIT, RecordBatch, batches

Clock = Callable[[], int]

_OFFSETS_IN_SEGMENT_MAX = 2**31 - 1
_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_LEADER_EPOCH_POSITION = 12
_UNKNOWN = -(2**63)


class Appended(NamedTuple):
    """What became of an append. A duplicate was appended earlier, at the offsets given."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    is_duplicate: bool = False


class AppendGuard(Protocol):
    """Who may refuse appends: the log directory, when it is offline or nearly full."""

    # In words, why nothing is taken, and why nothing of clients is taken; None where all is well.
    refusal: str | None
    client_refusal: str | None

    def failed(self, error: OSError) -> None:
        """Learn what the system refused. The log's lock is held: no lock of a log may be taken here."""
        ...


class LogParts(NamedTuple):
    """What recovery hands to a log."""

    segments: list[Segment]
    leader_epochs: LeaderEpochs
    producers: Producers
    log_start_offset: int
    recovery_point: int


class Log:
    """The log of one partition. Opened by `recovery.open_log`."""

    def __init__(
        self,
        directory: Path,
        partition: TopicPartition,
        config: TopicConfig,
        files: OpenFiles,
        clock: Clock,
        lock: threading.Lock,
        parts: LogParts,
    ) -> None:
        self.directory = directory
        self.partition = partition
        self.leader_epochs = parts.leader_epochs
        self.producers = parts.producers
        self.lock = lock
        self.files = files
        self.clock = clock
        # None: appends are always taken.
        self.guard: AppendGuard | None = None
        self._config = config
        self.rules = AppendRules.of(config)
        # Oldest first; never empty; the last one is active.
        self.segments = parts.segments
        self.log_start_offset = parts.log_start_offset
        self.recovery_point = parts.recovery_point
        self.high_watermark = parts.log_start_offset
        self.last_flush_ms = clock()
        # How often the log was cut back: tells whoever reads closed segments without the lock that they may be others.
        self.cuts = 0
        # Deleted files and when they may be removed.
        self.doomed: list[tuple[int, list[Path]]] = []
        self._active_since_ms = clock()
        self._roll_jitter_ms = self._jitter()
        # A batch up to this timestamp does not make the active segment old; below all when that is not known.
        self._roll_timestamp = _UNKNOWN

    def __repr__(self) -> str:
        return (
            f"Log({self.partition}, offsets={self.log_start_offset}..{self.log_end_offset}, "
            f"segments={len(self.segments)}, size={self.size})"
        )

    # State

    @property
    def config(self) -> TopicConfig:
        """The options of the topic; they may change while the log is open."""
        return self._config

    @config.setter
    def config(self, config: TopicConfig) -> None:
        with self.lock:
            self._config = config
            self.rules = AppendRules.of(config)
            self._roll_timestamp = _UNKNOWN
            for segment in self.segments:
                segment.limits = self.limits

    @property
    def active(self) -> Segment:
        """The segment that is written."""
        return self.segments[-1]

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self.segments[-1].next_offset

    @property
    def size(self) -> int:
        """The bytes of all segments."""
        return sum(segment.size for segment in self.segments)

    @property
    def last_stable_offset(self) -> int:
        """How far a read_committed consumer may read."""
        with self.lock:
            return max(self.producers.last_stable_offset(self.high_watermark), self.log_start_offset)

    @property
    def limits(self) -> Limits:
        """What new segments go by."""
        config = self.config
        return Limits(config.segment_bytes, config.index_interval_bytes, config.segment_index_bytes)

    def advance_high_watermark(self, offset: int) -> None:
        """Note how far the log is replicated; never past its end."""
        with self.lock:
            self.high_watermark = max(min(offset, self.log_end_offset), self.log_start_offset)
            self.producers.on_high_watermark(self.high_watermark)

    def advance_log_start(self, offset: int) -> bool:
        """Let the log begin at `offset`; what lies below is deleted by retention. Return whether that was news."""
        with self.lock:
            if offset <= self.log_start_offset:
                return False
            if offset > self.high_watermark:
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{offset} is above the high watermark")
            self.log_start_offset = offset
            self.leader_epochs.truncate_from_start(offset)
            return True

    # Appending

    def append_as_leader(self, batch: RecordBatch, leader_epoch: int, *, from_client: bool = True) -> Appended:
        """Append a validated batch at the end of the log, giving it its offsets and the leader's epoch."""
        with self.lock:
            if self.guard is not None:
                self._check_accepted(self.guard.client_refusal if from_client else self.guard.refusal)
            if batch.producer_id >= 0:
                known = self.producers.check(batch, from_client=from_client)
                if known is not None:
                    time_ms = known.timestamp if batch.attributes & TIMESTAMP_TYPE_BIT else NO_TIMESTAMP
                    return Appended(known.base_offset, known.last_offset, time_ms, self.log_start_offset, True)
            first = self.segments[-1].next_offset
            last = first + batch.last_offset_delta
            try:
                segment = self._segment_for(batch.size, first, last, batch.max_timestamp)
                window, at = segment.append(batch.view, last, batch.max_timestamp)
                if leader_epoch > self.leader_epochs.latest_epoch:
                    self.leader_epochs.assign(leader_epoch, first)
            except OSError as error:
                raise self._refused(error) from error
            _BASE_OFFSET.pack_into(window, at, first)
            _LEADER_EPOCH.pack_into(window, at + _LEADER_EPOCH_POSITION, leader_epoch)
            if batch.producer_id >= 0:
                self._update_producers(segment, batch, first)
            time_ms = batch.max_timestamp if batch.attributes & TIMESTAMP_TYPE_BIT else NO_TIMESTAMP
            return Appended(first, last, time_ms, self.log_start_offset)

    def append_as_follower(self, data: memoryview | bytes) -> Appended | None:
        """Append batches fetched from the leader, offsets and epochs as they are; None where there is no whole one.

        Raises CorruptBatchError, with nothing appended, where a batch is damaged or does not continue the log.
        """
        taken = list(batches(data))
        if not taken:
            return None
        for batch in taken:
            batch.check()
        with self.lock:
            if self.guard is not None:
                self._check_accepted(self.guard.refusal)
            self._check_continues(taken)
            size = sum(batch.size for batch in taken)
            if size <= self.rules.segment_bytes:
                self._append_group(taken, memoryview(data)[:size])
            else:
                for batch in taken:
                    self._append_group([batch], batch.view)
            return Appended(taken[0].base_offset, taken[-1].last_offset, NO_TIMESTAMP, self.log_start_offset)

    def _append_group(self, group: list[RecordBatch], piece: memoryview) -> None:
        """Write the batches, which lie back to back in `piece`, to one segment."""
        max_timestamp = max(batch.max_timestamp for batch in group)
        last = group[-1].last_offset
        try:
            segment = self._segment_for(len(piece), group[0].base_offset, last, max_timestamp)
            segment.append(piece, last, max_timestamp)
            self.leader_epochs.assign_all((batch.partition_leader_epoch, batch.base_offset) for batch in group)
        except OSError as error:
            raise self._refused(error) from error
        for batch in group:
            self._update_producers(segment, batch, batch.base_offset)

    def _refused(self, error: OSError) -> KafkaError:
        """Say what the system refused in terms that clients understand; the log is as it was."""
        if self.guard is not None:
            self.guard.failed(error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot write to {self.directory}: {error.strerror or error}")

    def _check_accepted(self, refusal: str | None) -> None:
        if refusal is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, refusal)

    def _check_continues(self, taken: Iterable[RecordBatch]) -> None:
        expected = self.log_end_offset
        for batch in taken:
            if batch.base_offset < expected or batch.last_offset_delta < 0:
                raise CorruptBatchError(
                    f"{self.partition}: offset {batch.base_offset} where {expected} or more must come"
                )
            expected = batch.next_offset

    def _update_producers(self, segment: Segment, batch: RecordBatch, base_offset: int) -> None:
        aborted = self.producers.update(batch, base_offset)
        if aborted is not None:
            segment.aborted_transactions.append(aborted)

    # Rolling

    def _segment_for(self, size: int, first_offset: int, last_offset: int, max_timestamp: int) -> Segment:
        """Return the segment that the append goes to, a new one where the active one is full or old."""
        active = self.segments[-1]
        fits = last_offset - active.base_offset <= _OFFSETS_IN_SEGMENT_MAX
        if active.size == 0 and fits:
            self._roll_timestamp = _UNKNOWN
            return active
        if (
            fits
            and active.size + size <= self.rules.segment_bytes
            and (max_timestamp <= self._roll_timestamp or not self._is_old(active, max_timestamp))
            and not active.is_index_full
        ):
            return active
        return self.roll_locked(first_offset)

    def _is_old(self, active: Segment, max_timestamp: int) -> bool:
        limit_ms = self.config.segment_ms
        if "compact" in self.config.cleanup_policy:
            limit_ms = min(limit_ms, self.config.max_compaction_lag_ms)
        limit_ms -= self._roll_jitter_ms
        first = active.first_timestamp
        if max_timestamp == NO_TIMESTAMP or first == NO_TIMESTAMP:
            return self.clock() - self._active_since_ms > limit_ms
        self._roll_timestamp = first + limit_ms
        return max_timestamp > self._roll_timestamp

    def roll(self) -> None:
        """Close the active segment, unless it is empty, and begin a new one."""
        with self.lock:
            if self.active.size:
                self.roll_locked(self.log_end_offset)

    def roll_locked(self, base_offset: int) -> Segment:
        """Close the active segment and begin one at `base_offset`. The caller holds the lock."""
        # Also without producers: recovery replays from the newest snapshot, and must not read the whole log.
        if self.active.size:
            write_snapshot(self.directory, ProducerSnapshot(base_offset, self.producers.entries()))
        created = Segment.create(self.directory, base_offset, self.limits, self.files, self.lock)
        if self.active.size:
            self.active.finish()
            self.segments.append(created)
        elif self.active.base_offset != base_offset:
            # An empty active segment whose base is too far below what comes: nothing points at it.
            self.active.close()
            self.active.unlink()
            self.segments[-1] = created
        self._active_since_ms = self.clock()
        self._roll_jitter_ms = self._jitter()
        self._roll_timestamp = _UNKNOWN
        return created

    def _jitter(self) -> int:
        jitter_ms = self.config.segment_jitter_ms
        return random.randrange(jitter_ms) if jitter_ms > 0 else 0

    # Reading

    def read(
        self, offset: int, max_bytes: int, upper_offset: int | None = None, *, at_least_one: bool = True
    ) -> FileSlice | None:
        """Return whole batches from the one that holds `offset` on; None where there are none below `upper_offset`.

        The slice is no longer than `max_bytes`, except for a single batch where `at_least_one` asks for progress.
        """
        with self.lock:
            end_offset = self.log_end_offset
            if not self.log_start_offset <= offset <= end_offset:
                raise KafkaError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"{offset} of {self.partition} is not within {self.log_start_offset} to {end_offset}",
                )
            upper = end_offset if upper_offset is None else min(upper_offset, end_offset)
            if offset >= upper:
                return None
            for segment in self.segments[self.index_of(offset) :]:
                batch = segment.find(offset)
                if batch is None:
                    continue  # compaction left a hole at the end of the segment
                if batch.last_offset >= upper:
                    return None
                end = segment.end_before(batch.position + max_bytes, upper, batch)
                if end == batch.position and at_least_one:
                    end += batch.size
                return FileSlice(segment.file, batch.position, end - batch.position) if end > batch.position else None
            return None

    def index_of(self, offset: int) -> int:
        """Return the index of the segment that `offset` belongs to. The caller holds the lock."""
        return max(bisect_right(self.segments, offset, key=lambda segment: segment.base_offset) - 1, 0)

    def aborted_transactions(self, from_offset: int, upper_offset: int) -> list[tuple[int, int]]:
        """Return (producer id, first offset) of the aborted transactions with data in the range."""
        with self.lock:
            indexes = [segment.aborted_transactions for segment in self.segments[self.index_of(from_offset) :]]
            return aborted_within(indexes, from_offset, upper_offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the largest epoch up to `epoch` that the log knows, and where it ends."""
        with self.lock:
            return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)
