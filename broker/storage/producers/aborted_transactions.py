"""The index of aborted transactions of one segment: what a read_committed consumer must skip.

    .txnindex   34 bytes an entry, one per ABORT marker in the segment that ended a transaction with data

    at  size  field
     0     2  version, 0
     2     8  producer id
    10     8  first offset of the transaction, which may lie in an earlier segment
    18     8  last offset: that of the marker
    26     8  last stable offset right after the marker

Last offsets rise from entry to entry. The file exists only while there are entries, and is open only during a call:
most segments have none. It is not synced: above the recovery point it is rebuilt from the log.

Not thread-safe: the partition's lock protects it.
"""

from __future__ import annotations

import errno
import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from operator import itemgetter
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from ottla.broker.storage.errors import CorruptIndexError

_ENTRY: Final = Struct(">hqqqq")
_VERSION: Final = 0
_CHUNK_ENTRIES: Final = 1024
_FIRST_OFFSET_OF: Final = itemgetter(1)


class AbortedIndexEntry(NamedTuple):
    """A transaction that an ABORT marker at `last_offset` ended."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class AbortedTransactions:
    """The `.txnindex` file of one segment. `path` is updated when the file is renamed."""

    __slots__ = ("base_offset", "path")

    def __init__(self, path: Path, base_offset: int) -> None:
        self.path = path
        self.base_offset = base_offset

    def __iter__(self) -> Iterator[AbortedIndexEntry]:
        return self._read_from(None)

    def append(self, transaction: AbortedIndexEntry) -> None:
        """Add a transaction; its marker is above all others in the segment."""
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            count = self._count(fd)
            assert count == 0 or self._last_offset(fd, count - 1) < transaction.last_offset
            try:
                if os.write(fd, _ENTRY.pack(_VERSION, *transaction)) != _ENTRY.size:
                    raise OSError(errno.ENOSPC, "an entry was written in part", str(self.path))
            except OSError:
                # Half an entry would make the whole file unreadable.
                self._cut(fd, count)
                raise
        finally:
            os.close(fd)

    def within(self, from_offset: int, upper_offset: int) -> list[tuple[int, int]]:
        """Do the same as `aborted_within`, for this segment alone."""
        return aborted_within((self,), from_offset, upper_offset)

    def truncate_to(self, offset: int) -> None:
        """Drop the transactions whose marker is at `offset` or above."""
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            count = self._count(fd)
            keep = self._index_of(fd, count, offset)
            if keep < count:
                self._cut(fd, keep)
        finally:
            os.close(fd)

    def delete(self) -> None:
        """Remove the file, if there is one."""
        self.path.unlink(missing_ok=True)

    def check(self) -> None:
        """Raise CorruptIndexError unless all entries make sense in this segment."""
        last_offset = self.base_offset - 1
        for index, entry in enumerate(self):
            sane = (
                entry.producer_id >= 0
                and 0 <= entry.first_offset < entry.last_offset
                and 0 <= entry.last_stable_offset <= entry.last_offset + 1
                and entry.last_offset > last_offset
            )
            if not sane:
                raise CorruptIndexError(f"{self.path}: entry {index} after offset {last_offset} is {entry}")
            last_offset = entry.last_offset

    def _read_from(self, offset: int | None) -> Iterator[AbortedIndexEntry]:
        """Yield the transactions whose marker is at `offset` or above, reading a chunk of them at a time."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            count = self._count(fd)
            index = 0 if offset is None else self._index_of(fd, count, offset)
            while index < count:
                chunk_count = min(count - index, _CHUNK_ENTRIES)
                chunk = self._read(fd, index, chunk_count)
                for version, producer_id, first_offset, last_offset, last_stable_offset in _ENTRY.iter_unpack(chunk):
                    if version != _VERSION:
                        raise CorruptIndexError(f"{self.path}: an entry of version {version}")
                    yield AbortedIndexEntry(producer_id, first_offset, last_offset, last_stable_offset)
                index += chunk_count
        finally:
            os.close(fd)

    def _count(self, fd: int) -> int:
        count, rest = divmod(os.fstat(fd).st_size, _ENTRY.size)
        if rest:
            raise CorruptIndexError(f"{self.path}: {rest} bytes after the last whole entry")
        return count

    def _index_of(self, fd: int, count: int, offset: int) -> int:
        """Return the index of the first entry whose marker is at `offset` or above."""
        return bisect_left(range(count), offset, key=lambda index: self._last_offset(fd, index))

    def _last_offset(self, fd: int, index: int) -> int:
        last_offset: int = _ENTRY.unpack(self._read(fd, index, 1))[3]
        return last_offset

    def _read(self, fd: int, index: int, count: int) -> bytes:
        data = os.pread(fd, count * _ENTRY.size, index * _ENTRY.size)
        if len(data) != count * _ENTRY.size:
            raise CorruptIndexError(f"{self.path}: cut short while it is read")
        return data

    def _cut(self, fd: int, count: int) -> None:
        if count:
            os.ftruncate(fd, count * _ENTRY.size)
        else:
            self.path.unlink()


def aborted_within(
    segments: Iterable[AbortedTransactions], from_offset: int, upper_offset: int
) -> list[tuple[int, int]]:
    """Return (producer id, first offset) of the aborted transactions with data in [from_offset, upper_offset).

    They are sorted by first offset.

    `segments` begins with the segment of `from_offset` and reaches to the end of the log: a transaction is indexed
    where its marker is, which may be far above its data. The search stops at the first entry whose last stable offset
    reaches the upper offset, because no transaction that was open below it can end later.
    """
    found: list[tuple[int, int]] = []
    for segment in segments:
        for entry in segment._read_from(from_offset):
            if entry.first_offset < upper_offset:
                found.append((entry.producer_id, entry.first_offset))
            if entry.last_stable_offset >= upper_offset:
                return sorted(found, key=_FIRST_OFFSET_OF)
    return sorted(found, key=_FIRST_OFFSET_OF)
