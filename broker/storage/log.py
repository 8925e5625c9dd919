"""The log of one partition: segments in a row, of which the last is written.

Offsets rise through the log, `log_start_offset` <= `high_watermark` <= `log_end_offset`. Everything below the
recovery point has been forced to disk. Beside the segments the log keeps the leader epochs and the state of the
producers, both of which can be had again from the batches.

One lock, the log's own, protects all of it; public methods take it. Nothing waits for a disk flush while holding
it. Slices that `read` hands out need no lock and stay valid when segments are rolled, deleted or replaced.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ottla.broker.storage.directory_files import note_holes
from ottla.broker.storage.log_reading import FAILURES, UNKNOWN, AppendGuard, Clock, LogParts, ReadableLog
from ottla.broker.storage.producers.producer_replay import replay_from_snapshot
from ottla.broker.storage.producers.producer_snapshot import ProducerSnapshot, write_snapshot
from ottla.broker.storage.segment import Segment
from ottla.protocol.control_records import read_marker
from ottla.protocol.errors import CorruptBatchError, ErrorCode, KafkaError
from ottla.protocol.records import NO_LEADER_EPOCH, NO_TIMESTAMP, TIMESTAMP_TYPE_BIT, RecordBatch, batches

__all__ = ["AppendGuard", "Appended", "Clock", "Log", "LogParts"]

# An index entry has 32 bits for an offset.
OFFSETS_IN_SEGMENT_MAX = 2**31 - 1


class Appended(NamedTuple):
    """What became of an append. A duplicate was appended earlier, at the offsets given."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    is_duplicate: bool = False


class Log(ReadableLog):
    """The log of one partition. Opened by `recovery.open_log`."""

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
                if leader_epoch != self.leader_epochs.stored_epoch:
                    self._enter_epoch(leader_epoch, first)
                segment.append(batch, first, leader_epoch)
            except FAILURES as error:
                raise self.storage_error(error) from error
            if batch.producer_id >= 0:
                self._note_producers(segment, (batch,), first)
            time_ms = batch.max_timestamp if batch.attributes & TIMESTAMP_TYPE_BIT else NO_TIMESTAMP
            return Appended(first, last, time_ms, self.log_start_offset)

    def append_as_follower(self, data: memoryview | bytes, leader_epoch: int) -> Appended | None:
        """Append batches fetched from the leader, offsets and epochs as they are; None where there is no whole one.

        Raises CorruptBatchError, with nothing appended, where a batch is damaged, does not continue the log, or is of
        a later epoch than the one in which it was fetched: a leader that lost its office may have copied it from the
        next, behind other records than ours.
        """
        taken = list(batches(data))
        if not taken:
            return None
        for batch in taken:
            batch.check()
            if batch.is_control:
                read_marker(batch)
        with self.lock:
            if self.guard is not None:
                self._check_accepted(self.guard.refusal)
            if self._check_continues(taken, leader_epoch):
                self._note_holes()
            size = sum(batch.size for batch in taken)
            offsets = taken[-1].last_offset - self.log_end_offset
            if size <= self.rules.segment_bytes and offsets <= OFFSETS_IN_SEGMENT_MAX:
                self._append_group(taken, memoryview(data)[:size])
            else:
                for batch in taken:
                    self._append_group([batch], batch.view)
            return Appended(taken[0].base_offset, taken[-1].last_offset, NO_TIMESTAMP, self.log_start_offset)

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
        """Write down where an epoch begins, before the first batch that carries it can be found in the log."""
        latest_epoch = self.leader_epochs.latest_epoch
        if leader_epoch < latest_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"{leader_epoch} after {latest_epoch} in {self.partition}")
        self.leader_epochs.assign(leader_epoch, first_offset)

    def _check_accepted(self, refusal: str | None) -> None:
        if refusal is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, refusal)

    def _note_holes(self) -> None:
        """Write down that offsets are left out, before the first batch behind a hole can be found in the log."""
        try:
            note_holes(self.directory)
        except FAILURES as error:
            raise self.storage_error(error) from error

    def _check_continues(self, taken: Sequence[RecordBatch], leader_epoch: int) -> bool:
        """Raise CorruptBatchError where batches do not continue the log; return whether they leave out offsets."""
        expected = self.log_end_offset
        has_holes = False
        epoch = self.leader_epochs.epoch_for(expected - 1)
        for batch in taken:
            if batch.base_offset < expected or batch.last_offset_delta < 0:
                raise CorruptBatchError(
                    f"{self.partition}: offset {batch.base_offset} where {expected} or more must come"
                )
            has_holes = has_holes or batch.base_offset > expected
            expected = batch.next_offset
            last_epoch = epoch
            if batch.partition_leader_epoch != NO_LEADER_EPOCH:
                epoch = batch.partition_leader_epoch
            if epoch < last_epoch:
                raise CorruptBatchError(f"{self.partition}: epoch {epoch} at {batch.base_offset}, after {last_epoch}")
            if batch.partition_leader_epoch > leader_epoch:
                raise CorruptBatchError(
                    f"{self.partition}: epoch {epoch} at {batch.base_offset}, fetched in epoch {leader_epoch}"
                )
        return has_holes

    def _note_producers(self, segment: Segment, group: Sequence[RecordBatch], first_offset: int) -> None:
        """Note batches that were just appended from `first_offset` on; take them back where that is not possible."""
        try:
            for batch in group:
                # One batch of the leader's has its offset in the log only.
                base_offset = first_offset if len(group) == 1 else batch.base_offset
                aborted = self.producers.update(batch, base_offset)
                if aborted is not None:
                    segment.add_aborted(aborted)
        except OSError as error:
            # Aborted records that no index tells of would be read as committed ones.
            segment.truncate_to(first_offset)
            replay_from_snapshot(self.directory, self.producers, self.segments)
            raise self.storage_error(error) from error

    # Rolling

    def _segment_for(self, size: int, first_offset: int, last_offset: int, max_timestamp: int) -> Segment:
        """Return the segment that the append goes to, a new one where the active one is full or old."""
        active = self.segments[-1]
        fits = last_offset - active.base_offset <= OFFSETS_IN_SEGMENT_MAX
        if active.size == 0 and fits:
            self._roll_timestamp = UNKNOWN
            return active
        if (
            fits
            and active.size + size <= self.rules.segment_bytes
            and (max_timestamp <= self._roll_timestamp or not self._is_old(active, max_timestamp))
            and not active.is_index_full
        ):
            return active
        # Segments follow each other without a gap, where they can: one would look like a segment that is lost.
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
            # Its base is too far below what comes, and nothing points at it.
            active.discard()
            active.unlink()
            self.segments[-1] = created
        else:
            try:
                active.finish()
                # Also without producers: recovery replays from the newest snapshot, and must not read the whole log.
                write_snapshot(self.directory, ProducerSnapshot(base_offset, self.producers.entries()), durable=False)
            except FAILURES:
                created.discard()
                created.unlink()
                raise
            self.segments.append(created)
        self.active_changed()
        return created

    def active_changed(self) -> None:
        """Begin to measure the age of another active segment. The caller holds the lock."""
        self._active_since_ms = self.clock()
        self._roll_jitter_ms = self._jitter()
        self._roll_timestamp = UNKNOWN

    # Moving

    def relocate(self, directory: Path) -> None:
        """Rename the directory and let every path in it follow; an OSError leaves the log as it was."""
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
        """Close what is open; it is opened again when it is needed."""
        with self.lock:
            for segment in self.segments:
                segment.close_files()

    def discard_files(self) -> None:
        """Close what is open without writing anything, which a full disk could refuse: the files are to go."""
        with self.lock:
            for segment in self.segments:
                segment.discard()
