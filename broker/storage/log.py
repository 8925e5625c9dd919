"""The log of one partition: a row of segments. Only the last one, the active segment, is written.

Offsets rise through the log, `log_start_offset` <= `high_watermark` <= `log_end_offset`. Everything below the
recovery point has been forced to disk. The log also keeps the leader epochs and the state of the producers; both can
be rebuilt from the batches.

The log's lock protects all of it; public methods take the lock. Nothing waits for a disk flush while holding it.
Slices that `read` returns need no lock and stay valid when segments are rolled, deleted or replaced.
"""

from __future__ import annotations

import os
import random
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import takewhile
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple, Protocol

from msgspec import Struct

from ottla.broker.config import TopicConfig
from ottla.broker.storage.checkpoint import sync_directory
from ottla.broker.storage.directory_files import may_have_holes, note_holes
from ottla.broker.storage.errors import NO_SPACE, NoSpaceError, StorageError
from ottla.broker.storage.leader_epochs import LeaderEpochs
from ottla.broker.storage.open_files import FileSlice, OpenFiles, sync_path
from ottla.broker.storage.producers.aborted_transactions import AbortedTransactions, aborted_within
from ottla.broker.storage.producers.producer_replay import check_transaction_index, replay_from_snapshot
from ottla.broker.storage.producers.producer_snapshot import (
    StoredProducers,
    delete_snapshots_above,
    snapshot_path,
    write_snapshot,
)
from ottla.broker.storage.producers.producers import (
    FROM_CLIENT,
    NO_TRANSACTION_NUMBER,
    AppendOrigin,
    Producers,
)
from ottla.broker.storage.segment import Limits, Segment
from ottla.broker.storage.validation import AppendRules
from ottla.protocol.control_records import read_marker
from ottla.protocol.errors import CorruptBatchError, ErrorCode, KafkaError
from ottla.protocol.identifiers import INTERNAL_TOPICS, TopicPartition
from ottla.protocol.records import NO_LEADER_EPOCH, NO_TIMESTAMP, TIMESTAMP_TYPE_BIT, RecordBatch, batches

Clock = Callable[[], int]

# What goes wrong with files: the system refuses, or they are not what they must be.
FAILURES = (OSError, CorruptBatchError, StorageError)
# An index entry has 32 bits for an offset.
OFFSETS_IN_SEGMENT_MAX = 2**31 - 1
_UNKNOWN = -(2**63)
_BASE_OFFSET_OF = attrgetter("base_offset")


class AppendGuard(Protocol):
    """Something that may refuse appends: the log directory, when it is offline or nearly full."""

    # Why no append is accepted, and none of clients, of followers to ordinary topics, of coordinators and followers to
    # internal topics; None if they are.
    refusal: str | None
    client_refusal: str | None
    copy_refusal: str | None
    coordinator_refusal: str | None

    def failed(self, error: OSError) -> None:
        """Take note of a system error. The log's lock is held, so no lock of a log may be taken here."""
        ...


class LogParts(NamedTuple):
    """What recovery has rebuilt for a log."""

    segments: list[Segment]
    leader_epochs: LeaderEpochs
    producers: Producers
    log_start_offset: int
    recovery_point: int


class Appended(Struct, frozen=True):
    """The result of an append. A duplicate was appended earlier, at these offsets."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    is_duplicate: bool = False


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
        # None: appends are always accepted.
        self.guard: AppendGuard | None = None
        self._is_internal = partition.topic in INTERNAL_TOPICS
        self._config = config
        self.rules = AppendRules.of(config)
        self._flush_interval = _flush_interval(config)
        # Oldest first; never empty; the last one is active.
        self.segments = parts.segments
        self.log_start_offset = parts.log_start_offset
        self.recovery_point = parts.recovery_point
        self.high_watermark = parts.log_start_offset
        self.last_flush_ms = clock()
        # What is wrong with the files; None as long as nobody has noticed anything.
        self.damage: str | None = None
        # Whether another log has replaced this one, with everything on disk; see log_moves.py.
        self.is_replaced = False
        # How often the log was cut. Readers of closed segments compare it to notice that they may be others now.
        self.cuts = 0
        # Deleted files and when they may be removed.
        self.doomed: list[tuple[int, list[Path]]] = []
        self._active_since_ms = clock()
        self._roll_jitter_ms = self._jitter()
        # A batch up to this timestamp does not make the active segment too old; _UNKNOWN until it is computed.
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
            self._flush_interval = _flush_interval(config)
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
        """The limits for new segments."""
        config = self.config
        return Limits(config.segment_bytes, config.index_interval_bytes, config.segment_index_bytes)

    def advance_high_watermark(self, offset: int) -> None:
        """Note how far the log is replicated; never past its end."""
        with self.lock:
            end = self.segments[-1].next_offset
            self._commit(max(offset if offset < end else end, self.log_start_offset))

    def _commit(self, high_watermark: int) -> None:
        self.high_watermark = high_watermark
        if self.producers.ended:
            self.producers.on_high_watermark(high_watermark)

    def advance_log_start(self, offset: int) -> bool:
        """Raise the log start to `offset`; retention deletes what lies below. Return whether the log start moved."""
        with self.lock:
            if offset <= self.log_start_offset:
                return False
            if offset > self.high_watermark:
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{offset} is above the high watermark")
            self.log_start_offset = offset
            # A full disk does not matter here: the next start does this again.
            with suppress(OSError):
                self.leader_epochs.truncate_from_start(offset)
            return True

    def storage_error(self, error: Exception) -> KafkaError:
        """Return the error that a client gets for a failure. The log is unchanged."""
        if not isinstance(error, OSError):
            self.damage = str(error)
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        if self.guard is not None:
            self.guard.failed(error)
        refused = NoSpaceError if error.errno in NO_SPACE else KafkaError
        return refused(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.directory}: {error.strerror or error}")

    # Appending

    def append_as_leader(
        self, batch: RecordBatch, leader_epoch: int, origin: AppendOrigin = FROM_CLIENT, is_committed: bool = False
    ) -> Appended:
        """Append a validated batch at the end of the log, giving it its offsets and the leader's epoch.

        `is_committed` moves the high watermark to the new end.
        """
        with self.lock:
            guard = self.guard
            if guard is not None:
                refusal = guard.client_refusal if origin.is_client else guard.coordinator_refusal
                if refusal is not None:
                    raise _refused(guard, refusal)
            if batch.producer_id >= 0:
                known = self.producers.check(batch, origin)
                if known is not None:
                    time_ms = known.timestamp if batch.attributes & TIMESTAMP_TYPE_BIT else NO_TIMESTAMP
                    return Appended(known.base_offset, known.last_offset, time_ms, self.log_start_offset, True)
            first = self.segments[-1].next_offset
            last = first + batch.last_offset_delta
            try:
                segment = self._segment_for(batch.size, first, last, batch.max_timestamp)
                if leader_epoch != self.leader_epochs.stored_epoch:
                    self._enter_epoch(leader_epoch, first)
                segment.append(batch, first, leader_epoch)
            except FAILURES as error:
                raise self.storage_error(error) from error
            if batch.producer_id >= 0:
                self._note_producers(segment, (batch,), first)
                if origin.transaction_number != NO_TRANSACTION_NUMBER:
                    self.producers.number_marker(batch.producer_id, origin.transaction_number, first)
            if is_committed:
                self._commit(last + 1)
            time_ms = batch.max_timestamp if batch.attributes & TIMESTAMP_TYPE_BIT else NO_TIMESTAMP
            return Appended(first, last, time_ms, self.log_start_offset)

    def append_as_follower(self, data: memoryview | bytes, leader_epoch: int) -> Appended | None:
        """Append batches fetched from the leader, with their offsets and epochs; None if there is no whole batch.

        Raises CorruptBatchError, with nothing appended, if a batch is damaged, does not continue the log, or has a
        later epoch than the one in which it was fetched. A deposed leader may have copied such a batch from the next
        leader, after records that differ from ours.
        """
        taken = list(batches(data))
        if not taken:
            return None
        for batch in taken:
            batch.check()
            if batch.is_control:
                read_marker(batch)
        with self.lock:
            if self.guard is not None and (refusal := self.copy_refusal) is not None:
                raise _refused(self.guard, refusal)
            self._check_epochs(taken, leader_epoch)
            if self._has_holes(taken, self.log_end_offset):
                self._note_holes()
            size = sum(batch.size for batch in taken)
            offsets = taken[-1].last_offset - self.log_end_offset
            if size <= self.rules.segment_bytes and offsets <= OFFSETS_IN_SEGMENT_MAX:
                self._append_group(taken, memoryview(data)[:size])
            else:
                for batch in taken:
                    self._append_group([batch], batch.view)
            return Appended(taken[0].base_offset, taken[-1].last_offset, NO_TIMESTAMP, self.log_start_offset)

    def append_mirrored(
        self, data: memoryview | bytes, leader_epoch: int, log_end_offset: int, log_start_offset: int
    ) -> list[RecordBatch]:
        """Append batches of another cluster with their offsets and the leader's epoch; return them.

        Raises KafkaError if the log does not end at `log_end_offset`, or a batch is damaged or does not continue the
        one before it; nothing was appended then. A log that ends before `log_start_offset` begins again there, or at
        the first batch if that holds the start: its own records were deleted in the other cluster.
        """
        try:
            taken = list(batches(data, strict=True))
            for batch in taken:
                batch.check()
                if batch.is_control:
                    read_marker(batch)
        except CorruptBatchError as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        with self.lock:
            if self.guard is not None and self.guard.client_refusal is not None:
                raise _refused(self.guard, self.guard.client_refusal)
            end = self.log_end_offset
            if end != log_end_offset:
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.partition} ends at {end}, not {log_end_offset}")
            begin = min(log_start_offset, taken[0].base_offset) if taken else log_start_offset
            try:
                has_holes = self._has_holes(taken, max(begin, end))
            except CorruptBatchError as error:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
            try:
                if begin > end:
                    self._restart_at(begin)
                    self.leader_epochs.begin(leader_epoch, begin)
                if has_holes:
                    note_holes(self.directory)
                for batch in taken:
                    self._append_mirrored_batch(batch, leader_epoch)
            except FAILURES as error:
                raise self.storage_error(error) from error
            return taken

    def _append_mirrored_batch(self, batch: RecordBatch, leader_epoch: int) -> None:
        first = batch.base_offset
        segment = self._segment_for(batch.size, first, batch.last_offset, batch.max_timestamp)
        if leader_epoch != self.leader_epochs.stored_epoch:
            self._enter_epoch(leader_epoch, first)
        segment.append(batch, first, leader_epoch)
        if batch.producer_id >= 0:
            self._note_producers(segment, (batch,), first)

    def _append_group(self, group: Sequence[RecordBatch], piece: memoryview) -> None:
        """Write the batches, which lie back to back in `piece`, to one segment."""
        max_timestamp = max(batch.max_timestamp for batch in group)
        first, last = group[0].base_offset, group[-1].last_offset
        try:
            segment = self._segment_for(len(piece), first, last, max_timestamp)
            self.leader_epochs.assign_all((batch.partition_leader_epoch, batch.base_offset) for batch in group)
            segment.append_all(group, piece)
        except FAILURES as error:
            raise self.storage_error(error) from error
        self._note_producers(segment, group, first)

    def _enter_epoch(self, leader_epoch: int, first_offset: int) -> None:
        """Store where an epoch begins, before the log has a batch of that epoch."""
        latest_epoch = self.leader_epochs.latest_epoch
        if leader_epoch < latest_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"{leader_epoch} after {latest_epoch} in {self.partition}")
        self.leader_epochs.assign(leader_epoch, first_offset)

    @property
    def copy_refusal(self) -> str | None:
        """Why nothing can be copied to this log now; None if it can. A topic of coordinators is copied longer."""
        guard = self.guard
        if guard is None:
            return None
        return guard.coordinator_refusal if self._is_internal else guard.copy_refusal

    def _note_holes(self) -> None:
        """Note on disk that offsets are missing, before the log has a batch behind a hole."""
        try:
            note_holes(self.directory)
        except FAILURES as error:
            raise self.storage_error(error) from error

    def _has_holes(self, taken: Sequence[RecordBatch], expected: int) -> bool:
        """Return whether batches skip offsets; raise CorruptBatchError if they do not continue at `expected`."""
        has_holes = False
        for batch in taken:
            if batch.base_offset < expected or batch.last_offset_delta < 0:
                raise CorruptBatchError(
                    f"{self.partition}: offset {batch.base_offset} where {expected} or more was expected"
                )
            has_holes = has_holes or batch.base_offset > expected
            expected = batch.next_offset
        return has_holes

    def _check_epochs(self, taken: Sequence[RecordBatch], leader_epoch: int) -> None:
        """Raise CorruptBatchError if epochs go back, or beyond the one in which the batches were fetched."""
        epoch = self.leader_epochs.epoch_for(self.log_end_offset - 1)
        for batch in taken:
            last_epoch = epoch
            if batch.partition_leader_epoch != NO_LEADER_EPOCH:
                epoch = batch.partition_leader_epoch
            if epoch < last_epoch:
                raise CorruptBatchError(f"{self.partition}: epoch {epoch} at {batch.base_offset}, after {last_epoch}")
            if batch.partition_leader_epoch > leader_epoch:
                raise CorruptBatchError(
                    f"{self.partition}: epoch {epoch} at {batch.base_offset}, fetched in epoch {leader_epoch}"
                )

    def _note_producers(self, segment: Segment, group: Sequence[RecordBatch], first_offset: int) -> None:
        """Update the producers' state with batches just appended; remove the batches if that fails."""
        try:
            for batch in group:
                # A batch that the leader appends has its offset in the log only.
                base_offset = first_offset if len(group) == 1 else batch.base_offset
                aborted = self.producers.update(batch, base_offset)
                if aborted is not None:
                    segment.add_aborted(aborted)
        except OSError as error:
            # Aborted records that no index lists would be read as committed.
            segment.truncate_to(first_offset)
            replay_from_snapshot(self.directory, self.producers, self.segments)
            raise self.storage_error(error) from error

    # Rolling

    def _segment_for(self, size: int, first_offset: int, last_offset: int, max_timestamp: int) -> Segment:
        """Return the segment for an append: the active one, or a new one if that is full or too old."""
        active = self.segments[-1]
        fits = last_offset - active.base_offset <= OFFSETS_IN_SEGMENT_MAX
        if active.size == 0 and fits:
            self._roll_timestamp = _UNKNOWN
            return active
        if (
            fits
            and active.size + size <= self.rules.segment_bytes
            and (max_timestamp <= self._roll_timestamp or not self._is_old(active, max_timestamp))
            and (active.index_room > 0 or not active.is_index_full)
        ):
            return active
        # Segments follow each other without a gap if possible: a gap would look like a lost segment.
        next_offset = active.next_offset
        return self.roll_locked(next_offset if last_offset - next_offset <= OFFSETS_IN_SEGMENT_MAX else first_offset)

    def _is_old(self, active: Segment, max_timestamp: int) -> bool:
        limit_ms = self.config.segment_ms
        if "compact" in self.config.cleanup_policy:
            limit_ms = min(limit_ms, self.config.max_compaction_lag_ms)
        limit_ms -= self._roll_jitter_ms
        first = active.first_timestamp
        if max_timestamp < 0 or first < 0:
            return self.clock() - self._active_since_ms > limit_ms
        self._roll_timestamp = first + limit_ms
        return max_timestamp > self._roll_timestamp

    def roll(self) -> None:
        """Close the active segment, unless it is empty, and begin a new one."""
        with self.lock:
            if self.active.size:
                self.roll_locked(self.log_end_offset)

    def roll_locked(self, base_offset: int) -> Segment:
        """Close the active segment and begin one at `base_offset`. The caller holds the lock.

        An OSError leaves the log as it was.
        """
        active = self.active
        if active.size == 0 and active.base_offset == base_offset:
            return active
        created = Segment.create(self.directory, base_offset, self.limits, self.files, self.lock)
        if active.size == 0:
            # Its base offset is too far below the next batch, and nothing refers to it.
            active.remove()
            self.segments[-1] = created
        else:
            try:
                active.finish()
                # Even without producers: recovery replays from the newest snapshot, and must not read the whole log.
                write_snapshot(self.directory, StoredProducers(base_offset, self.producers.entries()), durable=False)
            except FAILURES:
                created.remove()
                raise
            self.segments.append(created)
        self._active_changed()
        return created

    def _active_changed(self) -> None:
        """Start to measure the age of a new active segment. The caller holds the lock."""
        self._active_since_ms = self.clock()
        self._roll_jitter_ms = self._jitter()
        self._roll_timestamp = _UNKNOWN

    def _jitter(self) -> int:
        jitter_ms = self.config.segment_jitter_ms
        return random.randrange(jitter_ms) if jitter_ms > 0 else 0  # noqa: S311 - a pause

    # Reading

    def read(
        self, offset: int, max_bytes: int, upper_offset: int | None = None, *, at_least_one: bool = True
    ) -> FileSlice | None:
        """Return whole batches, starting with the one that holds `offset`; None if none lies below `upper_offset`.

        The slice is at most `max_bytes` long. With `at_least_one`, a single batch may be longer.
        """
        with self.lock:
            found = self._read(offset, max_bytes, upper_offset, at_least_one)
            return None if found is None else found[0]

    def read_committed(
        self, offset: int, max_bytes: int, upper_offset: int, *, at_least_one: bool = True
    ) -> tuple[FileSlice | None, list[tuple[int, int]]]:
        """Read for a read_committed consumer: return also the aborted transactions that have data in the slice."""
        with self.lock:
            found = self._read(offset, max_bytes, upper_offset, at_least_one)
            if found is None:
                return None, []
            piece, next_offset = found
            return piece, self._aborted(offset, next_offset)

    def _read(
        self, offset: int, max_bytes: int, upper_offset: int | None, at_least_one: bool
    ) -> tuple[FileSlice, int] | None:
        """Return a slice, and an offset above all of its records. The caller holds the lock."""
        end_offset = self.log_end_offset
        if not self.log_start_offset <= offset <= end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{offset} of {self.partition} is not within {self.log_start_offset} to {end_offset}",
            )
        upper = end_offset if upper_offset is None else min(upper_offset, end_offset)
        if offset >= upper:
            return None
        try:
            return self._find(offset, max_bytes, upper, at_least_one)
        except FAILURES as error:
            raise self.storage_error(error) from error

    def _find(self, offset: int, max_bytes: int, upper: int, at_least_one: bool) -> tuple[FileSlice, int] | None:
        for index in range(self.index_of(offset), len(self.segments)):
            segment = self.segments[index]
            batch = segment.find(offset)
            if batch is None:
                self._check_nothing_is_missing(segment)
                continue
            if batch.last_offset >= upper:
                return None
            end, next_offset = segment.end_before(batch.position + max_bytes, upper, batch)
            if end == batch.position and at_least_one:
                end, next_offset = batch.end, batch.last_offset + 1
            if end == batch.position:
                return None
            segment.check_found(batch.position, end, self.leader_epochs.epoch_for)
            return FileSlice(segment.file, batch.position, end - batch.position), next_offset
        return None

    def _check_nothing_is_missing(self, segment: Segment) -> None:
        """Raise StorageError if the segment that should follow is missing; compaction also leaves such holes."""
        if segment is self.active or segment.size == 0:
            return
        if "compact" in self.config.cleanup_policy or may_have_holes(self.directory):
            return
        end = max(batch.last_offset for batch in segment.headers_from(segment.next_offset - 1)) + 1
        # A snapshot is written for the base offset of every new segment.
        if end < segment.next_offset and snapshot_path(self.directory, end).exists():
            raise StorageError(f"{self.directory}: the segment that began at offset {end} is missing")

    def index_of(self, offset: int) -> int:
        """Return the index of the segment that `offset` belongs to. The caller holds the lock."""
        return max(bisect_right(self.segments, offset, key=_BASE_OFFSET_OF) - 1, 0)

    def aborted_transactions(self, from_offset: int, upper_offset: int) -> list[tuple[int, int]]:
        """Return (producer id, first offset) of the aborted transactions with data in the range, by first offset."""
        with self.lock:
            return self._aborted(from_offset, upper_offset)

    def _aborted(self, from_offset: int, upper_offset: int) -> list[tuple[int, int]]:
        try:
            return aborted_within(self._transaction_indexes(from_offset), from_offset, upper_offset)
        except FAILURES as error:
            raise self.storage_error(error) from error

    def _transaction_indexes(self, from_offset: int) -> Iterator[AbortedTransactions]:
        """Yield the transaction indexes that have entries, from the segment of an offset on; repair each one first."""
        for segment in self.segments[self.index_of(from_offset) :]:
            if not segment.is_transaction_index_sound:
                check_transaction_index(self.directory, self.segments, segment)
            if segment.has_aborted:
                yield segment.aborted_transactions

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the largest known epoch up to `epoch`, and its end offset."""
        with self.lock:
            return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    # Cutting

    def truncate_to(self, offset: int) -> bool:
        """Drop the batch that holds `offset` and everything behind it; return whether anything was there.

        An offset below the log start empties the log, which then begins at that offset.
        """
        with self.lock:
            if offset >= self.log_end_offset:
                # This broker may have entered an epoch as the leader without appending to it. The epoch may be
                # another leader's by now.
                self.leader_epochs.truncate_from_end(self.log_end_offset)
                return False
            if offset < self.log_start_offset:
                self._restart_at(offset)
                return True
            self.cuts += 1
            while len(self.segments) > 1 and self.active.base_offset >= offset:
                self.segments.pop().remove()
            self.active.truncate_to(offset)
            if self.log_end_offset < self.log_start_offset:
                # The log start lay within the batch that was cut.
                self._restart_at(self.log_start_offset)
                return True
            end = self.log_end_offset
            self.recovery_point = min(self.recovery_point, end)
            self.high_watermark = min(self.high_watermark, end)
            self._active_changed()
            self.leader_epochs.truncate_from_end(end)
            delete_snapshots_above(self.directory, end)
            replay_from_snapshot(self.directory, self.producers, self.segments)
            return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything and begin at `offset`: what a follower does whose leader's log starts behind its own end."""
        with self.lock:
            self._restart_at(offset)

    def _restart_at(self, offset: int) -> None:
        """Empty the log, last segment first: after a crash in between, its beginning is left to truncate again."""
        self.cuts += 1
        while len(self.segments) > 1:
            self.segments.pop().remove()
        self.active.remove()
        self.segments[0] = Segment.create(self.directory, offset, self.limits, self.files, self.lock)
        self.log_start_offset = offset
        self.high_watermark = offset
        self.recovery_point = min(self.recovery_point, offset)
        self._active_changed()
        self.leader_epochs.clear()
        self.producers.reset()
        delete_snapshots_above(self.directory, -1)

    # Flushing

    @property
    def is_flush_wanted(self) -> bool:
        """Whether so many records are not on disk that the last append must be flushed before it is acknowledged.

        That holds for leaders and followers: after all replicas have lost power, either kind may lead first.
        """
        return self.segments[-1].next_offset - self.recovery_point >= self._flush_interval

    def is_flush_due(self, now_ms: int) -> bool:
        """Whether `flush.messages`, `flush.ms` or a rolled segment asks for a flush."""
        unflushed = self.log_end_offset - self.recovery_point
        return unflushed > 0 and (
            self.recovery_point < self.active.base_offset
            or self.is_flush_wanted
            or now_ms - self.last_flush_ms >= self.config.flush_ms
        )

    def flush(self) -> int:
        """Force everything that the log holds now to disk; return the log end offset that this covers.

        The lock is not held while the disk works. Two flushes of one log must not run at once: the system reports a
        failure to one of them only.
        """
        with self.lock:
            end, cuts, active = self.log_end_offset, self.cuts, self.active
            unsynced = list(takewhile(lambda segment: segment.synced_size != segment.size, reversed(self.segments)))
            sizes = [segment.size for segment in unsynced]
            files = [segment.file for segment in unsynced]
            # Closed segments: after a power loss their indexes are believed, so they must be on disk with the data.
            indexes = [path for segment in unsynced if segment is not active for path in segment.paths[1:]]
            has_new_names = any(segment.synced_size < 0 for segment in unsynced)
        for file in files:
            file.sync()
        for path in indexes:
            sync_path(path)
        if has_new_names:
            sync_directory(self.directory)
        with self.lock:
            # After a cut, offsets below `end` may belong to batches that came too late for this flush.
            if self.cuts == cuts:
                self.recovery_point = max(self.recovery_point, end)
                for segment, size in zip(unsynced, sizes, strict=True):
                    # A segment that was rolled meanwhile has new indexes.
                    if segment is not active or segment is self.active:
                        segment.synced_size = size
            self.last_flush_ms = self.clock()
        return end

    # Moving

    def relocate(self, directory: Path) -> None:
        """Rename the directory and update every path in it; an OSError leaves the log as it was."""
        with self.lock:
            os.rename(self.directory, directory)
            self.directory = directory
            self.leader_epochs.path = directory / self.leader_epochs.path.name
            for segment in self.segments:
                segment.path = directory / segment.path.name
                for index in (segment.offset_index, segment.time_index, segment.aborted_transactions):
                    index.path = directory / index.path.name
            self.doomed = [(due_ms, [directory / path.name for path in paths]) for due_ms, paths in self.doomed]

    def close_files(self) -> None:
        """Close the open files; they are opened again when needed."""
        with self.lock:
            for segment in self.segments:
                segment.close_files()

    def discard_files(self) -> None:
        """Close the open files without writing, which could fail on a full disk: the files are going to be removed."""
        with self.lock:
            for segment in self.segments:
                segment.discard()


def _refused(guard: AppendGuard, refusal: str) -> KafkaError:
    """Return the error for a refused append: if the disk works, it is short of space."""
    return (NoSpaceError if guard.refusal is None else KafkaError)(ErrorCode.KAFKA_STORAGE_ERROR, refusal)


def _flush_interval(config: TopicConfig) -> int:
    """Return after how many unflushed records an append must be flushed before it is acknowledged."""
    return 1 if config.ottla_flush_before_ack else config.flush_messages
