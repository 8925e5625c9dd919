"""One segment of a log: a file of record batches, and its indexes.

    <base offset, 20 digits>.log        record batches as they were on the wire, back to back
    <base offset>.index, .timeindex     see index.py
    <base offset>.txnindex              see producers/aborted_transactions.py

Only the active segment, the last one of its log, is written, through a `WriteMap`. After a crash it may end in
zeros or in a torn batch; recovery cuts it at the last whole batch. A closed segment changes only by being
replaced or deleted as a whole.

An index entry is a hint. The batch that it points at must be there and must end at the offset that the entry gives;
otherwise the index is rebuilt from the log.

Not thread-safe: the log's lock protects it.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from ottla.broker.storage.errors import CorruptIndexError
from ottla.broker.storage.index import OffsetIndex, TimeIndex
from ottla.broker.storage.open_files import FileSlice, OpenFile, OpenFiles
from ottla.broker.storage.producers.aborted_transactions import AbortedIndexEntry, AbortedTransactions
from ottla.broker.storage.segment_file import NO_LIMIT, READ_BYTES, BatchAt, batch_headers, whole_batches
from ottla.broker.storage.write_map import WriteMap
from ottla.protocol.errors import CorruptBatchError
from ottla.protocol.records import NO_LEADER_EPOCH, NO_TIMESTAMP, RecordBatch

CORRUPT = (CorruptBatchError, CorruptIndexError)

# Followers and most consumers read what was written last.
_RECENT_MAX = 16
_COPY_SUFFIX = ".tmp"
_COPY_BYTES = 1024 * 1024


class Limits(NamedTuple):
    """The topic's options that apply to a segment."""

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
        # Whether the index of aborted transactions is known to be right, and whether it may have entries.
        self.is_transaction_index_sound = False
        self.has_aborted = True
        self.limits = limits
        self.size = 0
        self.next_offset = base_offset
        # How many bytes were forced to disk, with the indexes if the segment is closed; -1 if files are new or trimmed.
        self.synced_size = -1
        # This process wrote or scanned the batches from here on; below, it has checked those in [begin, end).
        self.own_position = NO_LIMIT
        self._checked = (0, 0)
        # Whether the largest timestamp comes from the batches themselves, and not from an index on disk.
        self.is_largest_certain = False
        self.used = True
        # The largest timestamp and the last offset of its batch; None until it is read from the time index.
        self._largest: tuple[int, int] | None = None
        # The max timestamp of the first batch; None until it is read.
        self._first_timestamp: int | None = None
        self._bytes_since_index = 0
        # The batches written last, while there is a map, by base offset: they are found without reading a file.
        self._recent: dict[int, BatchAt] = {}
        self._files = files
        self.lock = lock
        self._file: OpenFile | None = None
        # The open file, as long as a slice still holds it.
        self._lent: weakref.ref[OpenFile] | None = None
        # Only in the active segment. While there is a map, the indexes are loaded and known to be sound.
        self._map: WriteMap | None = None
        # How many more entries fit into the indexes; 0 while there is no map, because it is not known then.
        self.index_room = 0

    @classmethod
    def create(
        cls, directory: Path, base_offset: int, limits: Limits, files: OpenFiles, lock: threading.Lock
    ) -> Segment:
        """Create an empty segment. Files of the same name are removed; slices of them stay readable."""
        segment = cls(directory, base_offset, limits, files, lock)
        segment.unlink()
        try:
            segment._file = OpenFile(segment.path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
            segment._lent = weakref.ref(segment._file)
            segment.offset_index.reset()
            segment.time_index.reset()
        except OSError:
            segment.remove()
            raise
        segment.confirm_largest_timestamp((NO_TIMESTAMP, base_offset))
        segment.is_transaction_index_sound = True
        segment.own_position = 0
        segment.has_aborted = False
        files.opened(segment)
        return segment

    def __repr__(self) -> str:
        return f"Segment({self.path.name}, offsets={self.base_offset}..{self.next_offset}, size={self.size})"

    # Files

    @property
    def file(self) -> OpenFile:
        """The open log file; all slices of the segment share one."""
        self.used = True
        file = self._file
        if file is None:
            file = self._lent() if self._lent is not None else None
            if file is None:
                file = OpenFile(self.path, os.O_RDWR)
                self._lent = weakref.ref(file)
            self._file = file
            self._files.opened(self)
        return file

    @property
    def paths(self) -> list[Path]:
        """The files of the segment, whether they exist or not; the log first."""
        return [self.path, self.offset_index.path, self.time_index.path, self.aborted_transactions.path]

    def release(self, held: threading.Lock | None = None) -> bool:
        """Give up descriptors and loaded indexes, unless the log is busy or the indexes cannot be written.

        `held` is the lock that the caller holds: that of another log, or of this one, which opens another segment.
        """
        is_own = held is self.lock
        if not is_own and not self.lock.acquire(blocking=False):
            return False
        try:
            self.close_files()
        except OSError:
            # The caller wants to open another file, and must not fail because of this segment's disk.
            return False
        finally:
            if not is_own:
                self.lock.release()
        return True

    def close_files(self) -> None:
        """Close the open files; they are opened again when needed."""
        self._close_map()
        self.offset_index.release()
        self.time_index.release()
        self._close_file()

    def discard(self) -> None:
        """Close the open files without writing, which could fail on a full disk: the files are going to be removed."""
        self._close_map()
        self.offset_index.forget()
        self.time_index.forget()
        self._close_file()

    def unlink(self) -> None:
        """Remove the files; slices that are in use stay readable."""
        for path in self.paths:
            path.unlink(missing_ok=True)

    def remove(self) -> None:
        """Close and remove the files at once; slices that are in use stay readable."""
        self.discard()
        self.unlink()

    def _close_map(self) -> None:
        self._recent.clear()
        if self._map is not None:
            self._map.close(self.size)
            self._map = None
            self.index_room = 0

    def _close_file(self) -> None:
        self._file = None
        self._files.closed(self)

    # Writing

    def append(self, batch: RecordBatch, base_offset: int, leader_epoch: int) -> None:
        """Write a batch at the end, with its offset and epoch. An OSError leaves the segment as it was."""
        self.used = True
        position, size, max_timestamp = self.size, batch.size, batch.max_timestamp
        (self._map or self._open_map()).write_batch(position, batch.view, base_offset, leader_epoch)
        last_offset = base_offset + batch.last_offset_delta
        self._note(position, size, last_offset, max_timestamp)
        recent = self._recent
        recent[base_offset] = tuple.__new__(
            BatchAt, (position, size, base_offset, last_offset, max_timestamp, leader_epoch, batch.producer_id)
        )
        if len(recent) > _RECENT_MAX:
            del recent[next(iter(recent))]
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

    def add_aborted(self, transaction: AbortedIndexEntry) -> None:
        """Index a transaction whose marker is in this segment."""
        self.has_aborted = True
        try:
            self.aborted_transactions.append(transaction)
        except CorruptIndexError:
            # It is rebuilt from the markers when it is read next.
            self.is_transaction_index_sound = False

    def _note(self, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        """Account for a batch that was written, in the indexes too; nothing here can fail."""
        largest = self._largest
        if largest is None or max_timestamp > largest[0]:
            largest = self._largest = (max_timestamp, last_offset)
        if position == 0:
            self._first_timestamp = max_timestamp
        if self._bytes_since_index > self.limits.index_interval_bytes:
            self.offset_index.append(last_offset, position)
            self.time_index.append(*largest)
            self._bytes_since_index = 0
            self.index_room -= 1
        self._bytes_since_index += size
        self.size = position + size

    def _open_map(self) -> WriteMap:
        """Prepare to write. Files and indexes that cannot be used raise here, before anything is written."""
        file = self.file
        if not self._are_indexes_sound():
            self.rebuild_indexes()
        self._largest = self.largest_timestamp
        limit = self.limits.index_bytes_max
        entries = limit // self.offset_index.entry.size - len(self.offset_index)
        # One entry is reserved for the end of the time index.
        times = limit // self.time_index.entry.size - len(self.time_index) - 1
        self.index_room = min(entries, times)
        self._map = WriteMap(file, self.limits.segment_bytes)
        return self._map

    def _are_indexes_sound(self) -> bool:
        """Whether the last entries agree with the log, so that entries can be added."""
        try:
            self._headers_at(self.offset_index.last)
            last = self.time_index.last
            return last is None or (last[1] < self.next_offset and (not self._largest or last[0] <= self._largest[0]))
        except CORRUPT:
            return False

    @property
    def is_index_full(self) -> bool:
        """Whether no further entry fits, except for the last one of the time index."""
        if self._map is None:
            self._open_map()
        return self.index_room <= 0

    # Closing

    def finish(self) -> None:
        """Trim the file and complete the indexes: the segment is not written any more."""
        timestamp, offset = self.largest_timestamp
        self._close_map()
        self.synced_size = -1
        if timestamp != NO_TIMESTAMP and self.size:
            self.time_index.append(timestamp, offset)
        self.offset_index.write()
        self.time_index.write()

    def close(self) -> None:
        """Finish and close the files: a clean start need not look inside."""
        self.finish()
        self.close_files()

    # Finding

    def batches_at(self, position: int = 0) -> Iterator[BatchAt]:
        """Return the headers of the batches from `position` on."""
        return batch_headers(self.file, self.path, position, self.size, self.base_offset, self.next_offset)

    def read_batches(self, position: int = 0) -> Iterator[tuple[int, RecordBatch]]:
        """Read whole batches with their positions, from `position` on; the CRCs are not checked."""
        return whole_batches(self.file, self.path, position, self.size)

    def lend_batches(self, position: int, buffer_bytes: int = READ_BYTES) -> Iterator[tuple[int, RecordBatch]]:
        """Read like `read_batches`, without the lock: the iterator stays valid when the segment is cut or deleted."""
        lent = FileSlice(self.file, position, self.size - position)
        return whole_batches(lent.file, self.path, position, self.size, buffer_bytes)

    def find(self, offset: int) -> BatchAt | None:
        """Return the first batch that ends at or after `offset`; None if the segment ends before it."""
        batch = self._recent.get(offset)
        if batch is not None:
            return batch
        for batch in self.headers_from(offset):
            if batch.last_offset >= offset:
                return batch
        if offset < self.next_offset:
            self._check_is_hole(self.base_offset - 1 if batch is None else batch.last_offset)
        return None

    def end_before(self, position: int, offset: int, begin: BatchAt) -> tuple[int, int]:
        """Return the last batch boundary up to `position` whose batches all lie below `offset`, from `begin` on.

        Also returns an offset: batches before the boundary lie below it, batches behind the boundary do not.
        """
        if position >= self.size and offset >= self.next_offset:
            return self.size, self.next_offset
        if begin.end > position:
            return begin.position, begin.base_offset
        recent = self._recent.get(offset)
        if recent is not None and recent.position <= position:
            return recent.position, offset
        behind = self._recent.get(begin.last_offset + 1)
        while behind is not None:
            if behind.last_offset >= offset or behind.end > position:
                return behind.position, behind.base_offset
            behind = self._recent.get(behind.last_offset + 1)
        try:
            entry = self.offset_index.last_within(offset, position)
            headers = self.batches_at(begin.position) if entry[1] <= begin.position else self._headers_at(entry)
        except CORRUPT:
            self.rebuild_indexes()
            headers = self.batches_at(begin.position)
        end = begin.position
        for batch in headers:
            if batch.last_offset >= offset or batch.end > position:
                # If the iteration began at an index entry, all batches before it are below both bounds.
                return max(end, batch.position), batch.base_offset
            end = batch.end
        return end, self.next_offset

    def check_found(self, position: int, end: int, epoch_for: Callable[[int], int]) -> None:
        """Raise CorruptBatchError if the batches found on disk from `position` to `end` are damaged.

        CRCs must be right, offsets must rise, and epochs must be the known ones: the CRC covers neither offset nor
        epoch. Many clients do not check CRCs, and a replica must not lead with damaged records while others have good
        ones. What this process wrote, or has checked once, is not checked again.
        """
        end = min(end, self.own_position)
        begin, checked_end = self._checked
        start = checked_end if begin <= position <= checked_end else position
        if start >= end:
            return
        # Reads one header more: a batch whose offset is too high contradicts the batch behind it.
        for batch in self.batches_at(start):
            if batch.position >= end:
                break
            known_epoch = epoch_for(batch.base_offset)
            if batch.leader_epoch != known_epoch and NO_LEADER_EPOCH not in (batch.leader_epoch, known_epoch):
                raise CorruptBatchError(f"{self.path} has epoch {batch.leader_epoch} at offset {batch.base_offset}")
        for _, whole in whole_batches(self.file, self.path, start, end):
            whole.check()
        self._checked = (position, end) if start == position else (begin, end)

    def headers_from(self, offset: int) -> Iterator[BatchAt]:
        """Return the headers from the last indexed batch that is not above `offset`."""
        try:
            return self._headers_at(self.offset_index.lookup(offset))
        except CORRUPT:
            self.rebuild_indexes()
            return self._headers_at(self.offset_index.lookup(offset))

    def _headers_at(self, entry: tuple[int, int]) -> Iterator[BatchAt]:
        """Return the headers from an index entry on; CorruptIndexError if the log has another batch there."""
        offset, position = entry
        if position == 0:
            return self.batches_at()
        if 0 < position < self.size:
            headers = self.batches_at(position)
            first = next(headers)
            if first.last_offset == offset:
                return chain((first,), headers)
        raise CorruptIndexError(f"{self.offset_index.path} points at the wrong batch")

    def _check_is_hole(self, last_offset: int) -> None:
        """Raise CorruptBatchError if batches at the end of the segment are lost.

        Compaction also leaves holes there. But the indexes of a cleaned segment have no entries for the hole; those of
        a damaged segment do.
        """
        with suppress(CorruptIndexError):
            index_offset, position = self.offset_index.last
            timestamp_offset = (self.time_index.last or (0, last_offset))[1]
            known = max(timestamp_offset, index_offset if position else last_offset)
            if last_offset < known < self.next_offset:
                raise CorruptBatchError(f"{self.path} ends at offset {last_offset}, but its indexes know of {known}")

    # Timestamps

    @property
    def largest_timestamp(self) -> tuple[int, int]:
        """The largest timestamp, NO_TIMESTAMP without one, and the last offset of the batch that has it."""
        if self._largest is None:
            self._largest = self._read_largest_timestamp()
        return self._largest

    @property
    def first_timestamp(self) -> int:
        """The max timestamp of the first batch; it decides when the segment is old enough to roll."""
        if self._first_timestamp is None:
            self._first_timestamp = next(self.batches_at()).max_timestamp if self.size else NO_TIMESTAMP
        return self._first_timestamp

    def confirm_largest_timestamp(self, largest: tuple[int, int]) -> None:
        """Set the largest timestamp as read from the headers of a closed segment, not from its index."""
        self._largest, self.is_largest_certain = largest, True

    def _read_largest_timestamp(self) -> tuple[int, int]:
        """Read it from the time index. It counts if its batch agrees and no batch behind the last entry is later."""
        if self.size == 0:
            return NO_TIMESTAMP, self.base_offset
        try:
            last = self.time_index.last
            if last is not None:
                batch = self.find(last[1])
                behind = max(later.max_timestamp for later in self.headers_from(self.next_offset - 1))
                if batch is not None and (batch.max_timestamp, batch.last_offset) == last and behind <= last[0]:
                    return last
        except CORRUPT:
            pass
        self.rebuild_indexes()
        assert self._largest is not None
        return self._largest

    # Indexes

    def rebuild_indexes(self) -> None:
        """Rebuild both indexes from the log."""
        largest = (NO_TIMESTAMP, self.base_offset)
        offsets: list[tuple[int, int]] = []
        times: list[tuple[int, int]] = []
        bytes_since_index = 0
        last_offset = self.base_offset - 1
        for batch in self.batches_at():
            last_offset = batch.last_offset
            if batch.max_timestamp > largest[0]:
                largest = (batch.max_timestamp, last_offset)
            if bytes_since_index > self.limits.index_interval_bytes:
                offsets.append((last_offset, batch.position))
                times.append(largest)
                bytes_since_index = 0
            bytes_since_index += batch.size
        self._check_is_hole(last_offset)
        self.offset_index.reset()
        self.time_index.reset()
        for entry in offsets:
            self.offset_index.append(*entry)
        for entry in (*times, largest):
            self.time_index.append(*entry)
        # On a full disk they stay in memory: the log must still open and be readable.
        with suppress(OSError):
            self.offset_index.write()
            self.time_index.write()
        self._bytes_since_index = bytes_since_index
        self._largest, self.is_largest_certain = largest, True

    # Starting

    def recover(self, accepts: Callable[[int, int, RecordBatch], bool]) -> tuple[int, int]:
        """Return position and next offset at which the good batches end. The caller cuts there and rebuilds indexes.

        `accepts` is called for each whole batch, with its position and the offset that should come next. It may
        refuse the batch, which ends the segment there.
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
            pass  # the caller cuts off what is not a batch
        return end, next_offset

    def resume(self) -> bool:
        """Open the segment as a clean stop left it, reading only its tail; False if it is in another state."""
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
        """Open a closed segment without reading it; damaged batches are noticed when they are read."""
        self.size = self.synced_size = self.path.stat().st_size
        self.next_offset = next_offset

    # Cutting

    def truncate_to(self, offset: int) -> None:
        """Drop the batch that holds `offset` and everything behind it."""
        batch = self.find(offset)
        # None: a hole that compaction left at the end. Its offsets will be assigned again.
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
        """Cut the file to `size`. If slices reach further, they keep the old file, and the segment gets a copy."""
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
        """Replace the file by a copy of its first bytes; durably, since they may have been flushed before."""
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
        """Return the largest timestamp of what is left: that of the last entry, or of a batch behind it."""
        largest = self.time_index.last or (NO_TIMESTAMP, self.base_offset)
        for batch in self.headers_from(max(self.offset_index.last[0], largest[1])):
            if batch.max_timestamp > largest[0]:
                largest = (batch.max_timestamp, batch.last_offset)
        return largest
