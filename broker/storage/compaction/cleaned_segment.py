"""The segment that compaction writes, under temporary names. swap.py puts it in place."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from ottla.broker.storage.compaction.swap import CLEANED_SUFFIX, discard_cleaned, segment_file
from ottla.broker.storage.index import OffsetIndex, TimeIndex
from ottla.broker.storage.producers.aborted_transactions import AbortedIndexEntry, AbortedTransactions
from ottla.broker.storage.segment import Limits
from ottla.protocol.records import NO_TIMESTAMP, RecordBatch

_POSITION_MAX = 2**31 - 1


class CleanedSegment:
    """Files that are written once, from start to end. No other thread uses them, so there is no lock."""

    def __init__(self, directory: Path, base_offset: int, limits: Limits, buffer_bytes: int) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.size = 0
        self._limits = limits
        self._offset_index = OffsetIndex(self._named(".index"), base_offset)
        self._time_index = TimeIndex(self._named(".timeindex"), base_offset)
        self._aborted = AbortedTransactions(self._named(".txnindex"), base_offset)
        self._aborted.path.write_bytes(b"")
        self._offset_index.reset()
        self._time_index.reset()
        self.has_aborted = False
        # The largest timestamp, and the last offset of the batch that has it.
        self.largest_timestamp = (NO_TIMESTAMP, base_offset)
        self._bytes_since_index = 0
        self._path = self._named(".log")
        self._file = open(self._path, "wb", buffering=buffer_bytes)  # noqa: SIM115

    def append(self, data: bytearray | memoryview) -> None:
        """Write a batch, and index it as an append to a log does."""
        batch = RecordBatch(data)
        if batch.max_timestamp > self.largest_timestamp[0]:
            self.largest_timestamp = (batch.max_timestamp, batch.last_offset)
        if self._bytes_since_index > self._limits.index_interval_bytes and self.size <= _POSITION_MAX:
            self._offset_index.append(batch.last_offset, self.size)
            self._time_index.append(*self.largest_timestamp)
            self._bytes_since_index = 0
        self._file.write(data)
        self._bytes_since_index += batch.size
        self.size += batch.size

    def note_aborted(self, transaction: AbortedIndexEntry) -> None:
        """Index a transaction whose marker is in this segment, and that still has a batch."""
        self._aborted.append(transaction)
        self.has_aborted = True

    def finish(self, modified_ns: int) -> None:
        """Complete the files and force them to disk, with the modification time of the source, which retention uses."""
        if self.largest_timestamp[0] != NO_TIMESTAMP:
            self._time_index.append(*self.largest_timestamp)
        self._file.flush()
        os.utime(self._path, ns=(modified_ns, modified_ns))
        os.fsync(self._file.fileno())
        self._file.close()
        self._offset_index.write()
        self._time_index.write()
        for path in (self._offset_index.path, self._time_index.path, self._aborted.path):
            _sync(path)

    def discard(self) -> None:
        """Remove the files."""
        with suppress(OSError):  # the rest of the buffer may not fit on the disk, and is not needed
            self._file.close()
        discard_cleaned(self.directory, self.base_offset)

    def _named(self, suffix: str) -> Path:
        return segment_file(self.directory, self.base_offset, suffix, CLEANED_SUFFIX)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
