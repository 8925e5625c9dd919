"""One segment of a log: a file of record batches, and its two indexes.

    <base offset, 20 digits>.log        record batches as they were on the wire, back to back
    <base offset>.index, .timeindex     see index.py
    <base offset>.txnindex              see aborted_transactions.py

Only the active segment, the last one of its log, is written, through a `WriteMap`. After a crash it may end in
zeros or in a torn batch; `recover` cuts it at the last whole batch. A closed segment changes only by being
replaced or deleted as a whole.

An index entry is a hint: the batch that it points at must be there and must begin at or before the offset looked
for. Where it does not, the index is rebuilt from the log. Not thread-safe: the log's lock protects it.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from ottla.broker.storage.aborted_transactions import AbortedTransactions
from ottla.broker.storage.errors import CorruptIndexError
from ottla.broker.storage.file_slice import OpenFile
from ottla.broker.storage.index import OffsetIndex, TimeIndex
from ottla.broker.storage.open_files import OpenFiles
from ottla.broker.storage.write_map import WriteMap
from ottla.protocol.errors import CorruptBatchError
from ottla.protocol.records import BATCH_HEADER_BYTES, BATCH_LENGTH_OVERHEAD, MAGIC, NO_TIMESTAMP, RecordBatch

# The first fields of a batch header: base offset, batch length, leader epoch, magic, crc, attributes, last offset
# delta, base timestamp, max timestamp.
_HEADER = struct.Struct(">qiibIhiqq")
_SCAN_BYTES = 4096
_READ_BYTES = 1024 * 1024


class BatchAt(NamedTuple):
    """Where a batch lies, and what its header says."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    max_timestamp: int


class Limits(NamedTuple):
    """What the topic's options say about a segment."""

    segment_bytes: int
    index_interval_bytes: int
    index_bytes_max: int


class Segment:
    """A file of batches from `base_offset` up to, but not including, `next_offset`."""

    def __init__(
        self, directory: Path, base_offset: int, limits: Limits, files: OpenFiles, lock: threading.Lock
    ) -> None:
        name = f"{base_offset:020d}"
        self.base_offset = base_offset
        self.path = directory / f"{name}.log"
        self.offset_index = OffsetIndex(directory / f"{name}.index", base_offset)
        self.time_index = TimeIndex(directory / f"{name}.timeindex", base_offset)
        self.aborted_transactions = AbortedTransactions(directory / f"{name}.txnindex", base_offset)
        self.limits = limits
        self.size = 0
        self.next_offset = base_offset
        # The largest timestamp and the last offset of its batch; None until it is read from the time index.
        self._largest: tuple[int, int] | None = None
        # Of the first batch; None until it is read.
        self._first_timestamp: int | None = None
        self.used = True
        self._bytes_since_index = 0
        # How many entries the indexes still take; None until they are looked at.
        self._index_room: int | None = None
        self._files = files
        self._lock = lock
        self._file: OpenFile | None = None
        self._map: WriteMap | None = None

    def __repr__(self) -> str:
        return f"Segment({self.path.name}, offsets={self.base_offset}..{self.next_offset}, size={self.size})"

    @classmethod
    def create(
        cls, directory: Path, base_offset: int, limits: Limits, files: OpenFiles, lock: threading.Lock
    ) -> Segment:
        """Make an empty segment."""
        segment = cls(directory, base_offset, limits, files, lock)
        segment._file = OpenFile(segment.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        segment.offset_index.reset()
        segment.time_index.reset()
        segment._largest = (NO_TIMESTAMP, base_offset)
        files.opened(segment)
        return segment

    # Files

    @property
    def file(self) -> OpenFile:
        """The open log file."""
        self.used = True
        if self._file is None:
            self._file = OpenFile(self.path, os.O_RDWR)
            self._files.opened(self)
        return self._file

    def release(self) -> bool:
        """Give descriptors and loaded indexes back, if the log is not busy."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            self.close_files()
        finally:
            self._lock.release()
        return True

    def close(self) -> None:
        """Trim and close the files, indexes complete: after this a clean start need not look inside."""
        self.finish()
        self.close_files()

    def finish(self) -> None:
        """Trim the file and complete the indexes: the segment will not be written any more."""
        if self._map is not None:
            self._map.close(self.size)
            self._map = None
        timestamp, offset = self.largest_timestamp
        if timestamp != NO_TIMESTAMP and self.size:
            self.time_index.append(timestamp, offset)
        self.offset_index.write()
        self.time_index.write()

    def sync(self) -> None:
        """Force the data and the indexes to disk."""
        os.fsync(self.file.fd)
        self.offset_index.sync()
        self.time_index.sync()

    @property
    def paths(self) -> list[Path]:
        """The files of the segment, whether they exist or not; the log first."""
        return [self.path, self.offset_index.path, self.time_index.path, self.aborted_transactions.path]

    def unlink(self) -> None:
        """Remove the files; slices that are in use stay readable."""
        for path in self.paths:
            path.unlink(missing_ok=True)

    def close_files(self) -> None:
        """Close what is open; it is opened again when it is needed."""
        if self._map is not None:
            self._map.close(self.size)
            self._map = None
        self.offset_index.release()
        self.time_index.release()
        self._file = None
        self._files.closed(self)

    # Writing

    def append(self, data: memoryview | bytes, last_offset: int, max_timestamp: int) -> tuple[mmap.mmap, int]:
        """Write whole batches at the end; return the map and the position in it where they lie, for patching.

        An OSError (no room on the disk) leaves the segment as it was.
        """
        self.used = True
        write_map = self._map
        if write_map is None:
            write_map = self._map = WriteMap(self.file, self.limits.segment_bytes)
        position = self.size
        written = write_map.write(position, data)
        largest = self._largest or self.largest_timestamp
        if max_timestamp > largest[0]:
            largest = self._largest = (max_timestamp, last_offset)
        if position == 0:
            self._first_timestamp = max_timestamp
        if self._bytes_since_index > self.limits.index_interval_bytes:
            self.offset_index.append(last_offset, position)
            self.time_index.append(*largest)
            self._bytes_since_index = 0
            self._index_room = None
        self._bytes_since_index += len(data)
        self.size = position + len(data)
        self.next_offset = last_offset + 1
        return written

    @property
    def is_index_full(self) -> bool:
        """Whether there is no room for another entry, the last one of the time index aside."""
        if self._index_room is None:
            entries = self.limits.index_bytes_max // self.offset_index.entry.size - len(self.offset_index)
            times = self.limits.index_bytes_max // self.time_index.entry.size - len(self.time_index) - 1
            self._index_room = min(entries, times)
        return self._index_room <= 0

    @property
    def largest_timestamp(self) -> tuple[int, int]:
        """The largest timestamp, NO_TIMESTAMP without one, and the last offset of the batch that has it."""
        if self._largest is None:
            self._largest = self._read_largest_timestamp()
        return self._largest

    @property
    def first_timestamp(self) -> int:
        """The largest timestamp of the first batch; it decides when the segment is old enough to roll."""
        if self._first_timestamp is None:
            self._first_timestamp = next(self.batches_at(0)).max_timestamp if self.size else NO_TIMESTAMP
        return self._first_timestamp

    # Finding

    def batches_at(self, position: int) -> Iterator[BatchAt]:
        """Walk over the headers of the batches from `position` on."""
        fd, size = self.file.fd, self.size
        while position < size:
            chunk = os.pread(fd, min(_SCAN_BYTES, size - position), position)
            at = 0
            while at + _HEADER.size <= len(chunk):
                base, length, _, magic, _, _, delta, _, max_timestamp = _HEADER.unpack_from(chunk, at)
                total = length + BATCH_LENGTH_OVERHEAD
                if magic != MAGIC or total < BATCH_HEADER_BYTES or position + at + total > size or delta < 0:
                    raise CorruptBatchError(f"{self.path} has no batch at position {position + at}")
                yield BatchAt(position + at, total, base, base + delta, max_timestamp)
                at += total
            if at == 0:
                raise CorruptBatchError(f"{self.path} ends within a batch header at position {position}")
            position += at

    def find(self, offset: int) -> BatchAt | None:
        """Return the first batch that ends at or after `offset`; None where the segment ends before it."""
        for batch in self._batches_before(offset):
            if batch.last_offset >= offset:
                return batch
        return None

    def end_before(self, position: int, offset: int, begin: BatchAt) -> int:
        """Return the last batch boundary up to `position` whose batches all lie below `offset`, from `begin` on."""
        if position >= self.size and offset >= self.next_offset:
            return self.size
        try:
            hint = max(self.offset_index.lookup(offset)[1], begin.position)
            hint = min(hint, max(self.offset_index.lookup_position(position), begin.position))
            end = self._end_before(hint, position, offset, begin)
        except (CorruptBatchError, CorruptIndexError):
            self.rebuild_indexes()
            end = self._end_before(begin.position, position, offset, begin)
        return end

    def _end_before(self, hint: int, position: int, offset: int, begin: BatchAt) -> int:
        end = hint
        for batch in self.batches_at(hint):
            if not begin.base_offset <= batch.base_offset <= batch.last_offset < self.next_offset:
                raise CorruptBatchError(f"{self.path}: offset {batch.base_offset} at position {batch.position}")
            if batch.last_offset >= offset or batch.position + batch.size > position:
                break
            end = batch.position + batch.size
        return end

    def _batches_before(self, offset: int) -> Iterator[BatchAt]:
        """Walk from the batch that the index names for `offset`, which begins at or before it."""
        try:
            position = self.offset_index.lookup(offset)[1]
            batches = self.batches_at(position)
            first = next(batches, None)
            if position and (first is None or not self.base_offset <= first.base_offset <= offset):
                raise CorruptIndexError(f"{self.offset_index.path} points at the wrong batch")
        except (CorruptBatchError, CorruptIndexError):
            self.rebuild_indexes()
            batches = self.batches_at(self.offset_index.lookup(offset)[1])
            first = next(batches, None)
        if first is not None:
            yield first
            yield from batches

    def read_batches(self, position: int = 0) -> Iterator[tuple[int, RecordBatch]]:
        """Read whole batches from `position` on, a megabyte at a time; the CRCs are not checked."""
        fd = self.file.fd
        while position < self.size:
            chunk = memoryview(os.pread(fd, min(_READ_BYTES, self.size - position), position))
            at = 0
            while len(chunk) - at >= BATCH_LENGTH_OVERHEAD:
                total = int.from_bytes(chunk[at + 8 : at + 12], signed=True) + BATCH_LENGTH_OVERHEAD
                if not BATCH_HEADER_BYTES <= total <= self.size - position - at:
                    raise CorruptBatchError(f"{self.path} has no batch at position {position + at}")
                if at + total > len(chunk):
                    if at == 0:
                        chunk = memoryview(os.pread(fd, total, position))
                        continue
                    break
                yield position + at, RecordBatch(chunk[at : at + total])
                at += total
            if at == 0:
                raise CorruptBatchError(f"{self.path} ends within a batch header at position {position}")
            position += at

    # Changing

    def truncate_to(self, offset: int) -> None:
        """Drop the batch that holds `offset` and everything behind it."""
        batch = self.find(offset)
        if batch is None:
            return
        previous = self.base_offset
        for before in self._batches_before(batch.base_offset - 1) if batch.position else ():
            if before.position >= batch.position:
                break
            previous = before.last_offset + 1
        self._cut(batch.position, previous)
        self.offset_index.truncate_to(previous)
        self.time_index.truncate_to(previous)
        self.aborted_transactions.truncate_to(previous)
        self._largest = self._read_largest_after_cut()
        self._first_timestamp = None
        self._index_room = None

    def recover(self, accept: Callable[[RecordBatch], bool]) -> bool:
        """Check every batch, cut the file behind the last good one, and rebuild the indexes.

        `accept` sees each good batch in turn and may refuse it, which ends the segment before it. Returns whether the
        file ended just there; a file that was preallocated, torn or damaged did not.
        """
        size = self.size = os.fstat(self.file.fd).st_size
        end, next_offset = 0, self.base_offset
        try:
            for position, batch in self.read_batches():
                batch.check()
                if batch.base_offset < next_offset or batch.last_offset_delta < 0 or not accept(batch):
                    break
                end, next_offset = position + batch.size, batch.next_offset
        except CorruptBatchError:
            pass  # what is not a batch is what the cut is for
        self._cut(end, next_offset)
        self.rebuild_indexes()
        return end == size

    def resume(self) -> bool:
        """Take the segment as a clean stop left it, reading only its tail; False where it is not like that."""
        self.size = self.path.stat().st_size
        self.next_offset = self.base_offset
        try:
            position = self.offset_index.last[1]
            for batch in self.batches_at(position):
                if batch.base_offset < self.next_offset:
                    return False
                self.next_offset = batch.last_offset + 1
        except (CorruptBatchError, CorruptIndexError):
            return False
        self._bytes_since_index = self.size - position
        self.close_files()
        return True

    def rebuild_indexes(self) -> None:
        """Make both indexes anew from the log."""
        self.offset_index.reset()
        self.time_index.reset()
        self._bytes_since_index = 0
        self._index_room = None
        largest = (NO_TIMESTAMP, self.base_offset)
        for batch in self.batches_at(0):
            if batch.max_timestamp > largest[0]:
                largest = (batch.max_timestamp, batch.last_offset)
            if self._bytes_since_index > self.limits.index_interval_bytes:
                self.offset_index.append(batch.last_offset, batch.position)
                self.time_index.append(*largest)
                self._bytes_since_index = 0
            self._bytes_since_index += batch.size
        if largest[0] != NO_TIMESTAMP:
            self.time_index.append(*largest)
        self._largest = largest
        self.offset_index.write()
        self.time_index.write()

    def _cut(self, size: int, next_offset: int) -> None:
        if self._map is not None:
            self._map.close(size)
            self._map = None
        elif size != os.fstat(self.file.fd).st_size:
            os.ftruncate(self.file.fd, size)
        self.size = size
        self.next_offset = next_offset

    def _read_largest_after_cut(self) -> tuple[int, int]:
        """Find the largest timestamp of what is left: the last entry's, or one of a batch behind that entry."""
        largest = self.time_index.last or (NO_TIMESTAMP, self.base_offset)
        for batch in self._batches_before(max(self.offset_index.last[0], largest[1])) if self.size else ():
            if batch.max_timestamp > largest[0]:
                largest = (batch.max_timestamp, batch.last_offset)
        return largest

    def _read_largest_timestamp(self) -> tuple[int, int]:
        """Read it from the time index, and believe it only if the batch says the same."""
        try:
            last = self.time_index.last
            if last is not None:
                batch = self.find(last[1])
                if batch is not None and (batch.max_timestamp, batch.last_offset) == last:
                    return last
            elif not self.size:
                return NO_TIMESTAMP, self.base_offset
        except CorruptIndexError:
            pass
        self.rebuild_indexes()
        assert self._largest is not None
        return self._largest
