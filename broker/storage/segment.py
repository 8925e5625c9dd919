"""One segment of a log: a file of record batches, and its two indexes.

    <base offset, 20 digits>.log        record batches as they were on the wire, back to back
    <base offset>.index, .timeindex     see index.py
    <base offset>.txnindex              see aborted_transactions.py

Only the active segment, the last one of its log, is written, through a `WriteMap`. After a crash it may end in
zeros or in a torn batch; recovery cuts it at the last whole batch. A closed segment changes only by being
replaced or deleted as a whole.

Not thread-safe: the log's lock protects it.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from ottla.broker.storage.batch_headers import NO_LIMIT, BatchAt
from ottla.broker.storage.errors import CorruptIndexError
from ottla.broker.storage.file_slice import FileSlice, OpenFile
from ottla.broker.storage.open_files import OpenFiles
from ottla.broker.storage.producers.aborted_transactions import AbortedTransaction
from ottla.broker.storage.segment_reading import CORRUPT, Limits, ReadableSegment
from ottla.broker.storage.write_map import WriteMap
from ottla.protocol.errors import CorruptBatchError
from ottla.protocol.records import NO_TIMESTAMP, RecordBatch

__all__ = ["BatchAt", "Limits", "Segment"]

_COPY_SUFFIX = ".tmp"
_COPY_BYTES = 1024 * 1024


class Segment(ReadableSegment):
    """A segment, which is written while it is the active one."""

    # How many entries the indexes still take; known while there is a map.
    _index_room = 0

    @classmethod
    def create(
        cls, directory: Path, base_offset: int, limits: Limits, files: OpenFiles, lock: threading.Lock
    ) -> Segment:
        """Make an empty segment; what lies under its name is removed, and stays readable for slices of it."""
        segment = cls(directory, base_offset, limits, files, lock)
        segment.unlink()
        try:
            segment._file = OpenFile(segment.path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
            segment._lent = weakref.ref(segment._file)
            segment.offset_index.reset()
            segment.time_index.reset()
        except OSError:
            segment.discard()
            segment.unlink()
            raise
        segment.confirm_largest_timestamp((NO_TIMESTAMP, base_offset))
        segment.is_transaction_index_sound = True
        segment.own_position = 0
        segment.has_aborted = False
        files.opened(segment)
        return segment

    # Writing

    def append(self, batch: RecordBatch, base_offset: int, leader_epoch: int) -> None:
        """Write a batch at the end, with its offset and epoch. An OSError leaves the segment as it was."""
        self.used = True
        position = self.size
        (self._map or self._open_map()).write_batch(position, batch.view, base_offset, leader_epoch)
        last_offset = base_offset + batch.last_offset_delta
        self._note(position, batch.size, last_offset, batch.max_timestamp)
        self._remember(
            BatchAt(
                position, batch.size, base_offset, last_offset, batch.max_timestamp, leader_epoch, batch.producer_id
            )
        )
        self.next_offset = last_offset + 1

    def append_all(self, group: Sequence[RecordBatch], data: memoryview) -> None:
        """Write batches as they are; they lie back to back in `data`. An OSError leaves the segment as it was."""
        self.used = True
        position = self.size
        (self._map or self._open_map()).write(position, data)
        for batch in group:
            self._note(position, batch.size, batch.last_offset, batch.max_timestamp)
            position += batch.size
        self.next_offset = group[-1].next_offset

    def add_aborted(self, transaction: AbortedTransaction) -> None:
        """Enter a transaction whose marker was written here."""
        self.has_aborted = True
        try:
            self.aborted_transactions.append(transaction)
        except CorruptIndexError:
            # Whoever asks for it next makes it anew, from the markers.
            self.is_transaction_index_sound = False

    def _note(self, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        """Enter a batch that was written into the indexes; nothing here can fail."""
        largest = self._largest
        if largest is None or max_timestamp > largest[0]:
            largest = self._largest = (max_timestamp, last_offset)
        if position == 0:
            self._first_timestamp = max_timestamp
        if self._bytes_since_index > self.limits.index_interval_bytes:
            self.offset_index.append(last_offset, position)
            self.time_index.append(*largest)
            self._bytes_since_index = 0
            self._index_room -= 1
        self._bytes_since_index += size
        self.size = position + size

    def _open_map(self) -> WriteMap:
        """Make ready to write: what can fail about files and indexes fails here, before anything is written."""
        file = self.file
        if not self._are_indexes_sound():
            self.rebuild_indexes()
        self._largest = self.largest_timestamp
        limit = self.limits.index_bytes_max
        entries = limit // self.offset_index.entry.size - len(self.offset_index)
        # One is kept for the last entry of the time index.
        times = limit // self.time_index.entry.size - len(self.time_index) - 1
        self._index_room = min(entries, times)
        self._map = WriteMap(file, self.limits.segment_bytes)
        return self._map

    def _are_indexes_sound(self) -> bool:
        """Whether entries can be added: the last ones agree with the log."""
        try:
            self._headers_at(self.offset_index.last)
            last = self.time_index.last
            return last is None or (last[1] < self.next_offset and (not self._largest or last[0] <= self._largest[0]))
        except CORRUPT:
            return False

    @property
    def is_index_full(self) -> bool:
        """Whether there is no room for another entry, the last one of the time index aside."""
        if self._map is None:
            self._open_map()
        return self._index_room <= 0

    # Closing

    def finish(self) -> None:
        """Trim the file and complete the indexes: the segment will not be written any more."""
        timestamp, offset = self.largest_timestamp
        self._close_map()
        self.synced_size = -1
        if timestamp != NO_TIMESTAMP and self.size:
            self.time_index.append(timestamp, offset)
        self.offset_index.write()
        self.time_index.write()

    def close(self) -> None:
        """Trim and close the files, indexes complete: after this a clean start need not look inside."""
        self.finish()
        self.close_files()

    def recover(self, accepts: Callable[[int, int, RecordBatch], bool]) -> tuple[int, int]:
        """Find where the good batches end, for the caller to `cut` there and to rebuild the indexes.

        `accepts` sees each whole batch in turn, with its position and the offset after the one before it, and may
        refuse it. Returns position and next offset.
        """
        self.size = os.fstat(self.file.fd).st_size
        end, next_offset, self.next_offset = 0, self.base_offset, NO_LIMIT
        self.own_position = 0
        try:
            for position, batch in self.read_batches():
                batch.check()
                if not accepts(position, next_offset, batch):
                    break
                end, next_offset = position + batch.size, batch.next_offset
        except CorruptBatchError:
            pass  # what is not a batch is what the cut is for
        return end, next_offset

    def resume(self) -> bool:
        """Take the segment as a clean stop left it, reading only its tail; False where it is not like that."""
        self.size = self.path.stat().st_size
        next_offset, self.next_offset = self.base_offset, NO_LIMIT
        try:
            entry = self.offset_index.last
            for batch in self._headers_at(entry):
                next_offset = batch.last_offset + 1
        except CORRUPT:
            return False
        self.next_offset = next_offset
        self.synced_size = self.own_position = self.size
        self._bytes_since_index = self.size - entry[1]
        return True

    def trust(self, next_offset: int) -> None:
        """Take a closed segment as it lies on disk; batches that are not what they must be are found when read."""
        self.size = self.synced_size = self.path.stat().st_size
        self.next_offset = next_offset

    # Cutting

    def truncate_to(self, offset: int) -> None:
        """Drop the batch that holds `offset` and everything behind it."""
        batch = self.find(offset)
        # None: a hole that compaction left at the end; the offsets in it are given anew.
        position, above = (self.size, offset) if batch is None else (batch.position, batch.base_offset)
        next_offset = self.base_offset
        for before in self.headers_from(above - 1) if position else ():
            if before.position >= position:
                break
            next_offset = before.last_offset + 1
        self.cut(position, next_offset)
        try:
            self.aborted_transactions.truncate_to(next_offset)
        except CorruptIndexError:
            self.is_transaction_index_sound = False
        try:
            self.offset_index.truncate_to(next_offset)
            self.time_index.truncate_to(next_offset)
            self._largest = self._read_largest_after_cut()
        except CORRUPT:
            self.rebuild_indexes()

    def cut(self, size: int, next_offset: int) -> None:
        """Let the log end at `size`. Slices that reach further keep the file, and the segment gets another one."""
        self._close_map()
        if size != os.fstat(self.file.fd).st_size:
            if self._is_lent_beyond(size):
                self._copy(size)
            else:
                os.truncate(self.path, size)
        self.size = size
        self.next_offset = next_offset
        self.synced_size = -1
        self.own_position = min(self.own_position, size)
        self._checked = (0, 0)
        self._recent.clear()
        self._first_timestamp = None
        self._bytes_since_index = 0

    def _is_lent_beyond(self, size: int) -> bool:
        if self._lent is None or self.file.lent_end <= size:
            return False
        # Nobody else holds the file but slices of it.
        self._file = None
        return self._lent() is not None

    def _copy(self, size: int) -> None:
        """Put a copy of the first bytes in the place of the file; durably, since they may have been flushed before."""
        copy_path = self.path.with_name(self.path.name + _COPY_SUFFIX)
        try:
            original = OpenFile(self.path)
            copy = OpenFile(copy_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for position in range(0, size, _COPY_BYTES):
                data = FileSlice(original, position, min(_COPY_BYTES, size - position)).read()
                while data:
                    data = data[os.write(copy.fd, data) :]
            os.fsync(copy.fd)
            os.replace(copy_path, self.path)
        except OSError:
            with suppress(OSError):
                copy_path.unlink()
            raise
        self._file = self._lent = None

    def _read_largest_after_cut(self) -> tuple[int, int]:
        """Find the largest timestamp of what is left: the last entry's, or one of a batch behind that entry."""
        largest = self.time_index.last or (NO_TIMESTAMP, self.base_offset)
        for batch in self.headers_from(max(self.offset_index.last[0], largest[1])):
            if batch.max_timestamp > largest[0]:
                largest = (batch.max_timestamp, batch.last_offset)
        return largest
