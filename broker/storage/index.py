"""The two indexes of a segment: offset to position, and timestamp to offset.

    .index      8 bytes an entry:  int32 offset - base offset, int32 position of the append it belongs to
    .timeindex  12 bytes an entry: int64 largest timestamp so far, int32 its offset - base offset

Both are sparse: an entry per `index.interval.bytes` of log, for the last offset of an append. Entries only rise.

In memory an index is loaded when it is first needed; new entries are kept there and reach the file when the
segment is rolled, closed or released. A crash may therefore lose entries, or tear the last one. That is harmless:
every segment past the recovery point is scanned and its indexes made anew, and whoever follows an entry checks
what it finds in the log there (`Segment`), so that a wrong index is rebuilt and never believed.

Not thread-safe: the log's lock protects them.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

from ottla.broker.storage.errors import CorruptIndexError

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")


class _SparseIndex:
    """Entries of one fixed size, rising by their first number."""

    __slots__ = ("_entries", "_written_bytes", "base_offset", "path")
    entry: struct.Struct

    def __init__(self, path: Path, base_offset: int) -> None:
        self.path = path
        self.base_offset = base_offset
        # None while nothing is loaded.
        self._entries: bytearray | None = None
        self._written_bytes = 0

    def __len__(self) -> int:
        return len(self._load()) // self.entry.size

    def reset(self) -> None:
        """Start empty, whatever the file holds."""
        self._entries = bytearray()
        self._written_bytes = 0
        os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644))

    def write(self) -> None:
        """Bring the file up to date."""
        entries = self._entries
        if entries is None or self._written_bytes == len(entries):
            return
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.pwrite(fd, memoryview(entries)[self._written_bytes :], self._written_bytes)
        finally:
            os.close(fd)
        self._written_bytes = len(entries)

    def release(self) -> None:
        """Write, and forget what is in memory."""
        self.write()
        self._entries = None

    def sync(self) -> None:
        """Write, and force the file to disk."""
        self.write()
        if self._written_bytes:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def _keep(self, count: int) -> None:
        """Keep the first `count` entries, in memory and in the file."""
        entries = self._load()
        del entries[count * self.entry.size :]
        if self._written_bytes > len(entries):
            os.truncate(self.path, len(entries))
            self._written_bytes = len(entries)

    def _load(self) -> bytearray:
        if self._entries is None:
            try:
                data = self.path.read_bytes()
            except FileNotFoundError as error:
                raise CorruptIndexError(f"{self.path} is missing") from error
            if len(data) % self.entry.size:
                raise CorruptIndexError(f"{self.path}: {len(data)} bytes are not whole entries")
            self._entries = bytearray(data)
            self._written_bytes = len(data)
        return self._entries

    def _position_of(self, number: int, *, side: int) -> int:
        """Return how many entries have a first number below `number` (side 0) or up to it (side 1)."""
        entries = self._load()
        size, unpack = self.entry.size, self.entry.unpack_from
        low, high = 0, len(entries) // size
        number += side
        while low < high:
            middle = (low + high) >> 1
            if unpack(entries, middle * size)[0] < number:
                low = middle + 1
            else:
                high = middle
        return low

    def _at(self, index: int) -> tuple[int, int]:
        first, second = self.entry.unpack_from(self._load(), index * self.entry.size)
        return first, second


class OffsetIndex(_SparseIndex):
    """Offset to position."""

    __slots__ = ()
    entry = _OFFSET_ENTRY

    def append(self, offset: int, position: int) -> None:
        """Add an entry; offsets only rise."""
        entries = self._load()
        relative = offset - self.base_offset
        assert not entries or relative > self._at(len(self) - 1)[0]
        entries += _OFFSET_ENTRY.pack(relative, position)

    def lookup(self, offset: int) -> tuple[int, int]:
        """Return (offset, position) of the last entry up to `offset`; the segment's begin where there is none."""
        index = self._position_of(offset - self.base_offset, side=1)
        if index == 0:
            return self.base_offset, 0
        relative, position = self._at(index - 1)
        return self.base_offset + relative, position

    def lookup_position(self, position: int) -> int:
        """Return the position of the last entry that lies at or before `position`."""
        entries = self._load()
        low, high = 0, len(entries) // _OFFSET_ENTRY.size
        while low < high:
            middle = (low + high) >> 1
            if _OFFSET_ENTRY.unpack_from(entries, middle * _OFFSET_ENTRY.size)[1] <= position:
                low = middle + 1
            else:
                high = middle
        return self._at(low - 1)[1] if low else 0

    def truncate_to(self, offset: int) -> None:
        """Drop the entries of `offset` and above."""
        self._keep(self._position_of(offset - self.base_offset, side=0))

    @property
    def last(self) -> tuple[int, int]:
        """(offset, position) of the last entry; the segment's begin where there is none."""
        if not len(self):
            return self.base_offset, 0
        relative, position = self._at(len(self) - 1)
        return self.base_offset + relative, position


class TimeIndex(_SparseIndex):
    """Timestamp to offset."""

    __slots__ = ()
    entry = _TIME_ENTRY

    def append(self, timestamp: int, offset: int) -> None:
        """Add an entry where it says something new: a later timestamp."""
        entries = self._load()
        if not entries or timestamp > self._at(len(self) - 1)[0]:
            entries += _TIME_ENTRY.pack(timestamp, offset - self.base_offset)

    def lookup(self, timestamp: int) -> tuple[int, int] | None:
        """Return (timestamp, offset) of the last entry with a timestamp below `timestamp`."""
        index = self._position_of(timestamp, side=0)
        if index == 0:
            return None
        found, relative = self._at(index - 1)
        return found, self.base_offset + relative

    def truncate_to(self, offset: int) -> None:
        """Drop the entries of `offset` and above."""
        relative = offset - self.base_offset
        count = len(self)
        while count and self._at(count - 1)[1] >= relative:
            count -= 1
        self._keep(count)

    @property
    def last(self) -> tuple[int, int] | None:
        """(timestamp, offset) of the last entry."""
        if not len(self):
            return None
        timestamp, relative = self._at(len(self) - 1)
        return timestamp, self.base_offset + relative
