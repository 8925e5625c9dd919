"""The two indexes of a segment: offset to position, and timestamp to offset.

    .index      8 bytes an entry:  int32 last offset of a batch - base offset, int32 position of that batch
    .timeindex  12 bytes an entry: int64 largest timestamp so far, int32 last offset of its batch - base offset

Both are sparse: an entry per `index.interval.bytes` of log. Entries only rise, and timestamps below 0 have none.

An index is loaded into memory when it is first needed. New entries are kept in memory and written when the segment is
rolled, closed or released, so a crash may lose entries or tear the last one. That is harmless: every segment past the
recovery point is scanned and its indexes are rebuilt. Before an entry is used, `Segment` checks that the log has that
batch there; otherwise it rebuilds the index.

Not thread-safe: the log's lock protects them.
"""

from __future__ import annotations

import os
import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from pathlib import Path
from typing import Final

from ottla.broker.storage.errors import CorruptIndexError

# More than the index of a 2 GiB segment with an entry for each of the smallest batches.
_INDEX_BYTES_MAX: Final = 512 * 1024 * 1024


class _SparseIndex:
    """Pairs of numbers, sorted by the first; kept as two arrays, which bisect searches at the speed of C."""

    __slots__ = ("_columns", "_written_count", "base_offset", "path")
    entry: struct.Struct
    first_code: str

    def __init__(self, path: Path, base_offset: int) -> None:
        self.path = path
        self.base_offset = base_offset
        # None while nothing is loaded.
        self._columns: tuple[array[int], array[int]] | None = None
        self._written_count = 0

    def __len__(self) -> int:
        return len(self._load()[0])

    def reset(self) -> None:
        """Drop all entries, in memory and in the file."""
        os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644))
        self._columns = array(self.first_code), array("i")
        self._written_count = 0

    def write(self) -> None:
        """Bring the file up to date."""
        if self._columns is None or self._written_count == len(self._columns[0]):
            return
        firsts, seconds = self._columns
        done, pack = self._written_count, self.entry.pack
        data = b"".join(map(pack, firsts[done:], seconds[done:]))
        position = done * self.entry.size
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            written = 0
            while written < len(data):
                written += os.pwrite(fd, data[written:], position + written)
        finally:
            os.close(fd)
        self._written_count = len(firsts)

    def release(self) -> None:
        """Write new entries to the file, and unload the index."""
        self.write()
        self.forget()

    def forget(self) -> None:
        """Unload the index without writing: the file is going to be removed."""
        self._columns = None
        self._written_count = 0

    def _keep(self, count: int) -> None:
        """Keep the first `count` entries, in memory and in the file."""
        for column in self._load():
            del column[count:]
        if self._written_count > count:
            os.truncate(self.path, count * self.entry.size)
            self._written_count = count

    def _load(self) -> tuple[array[int], array[int]]:
        if self._columns is None:
            try:
                if self.path.stat().st_size > _INDEX_BYTES_MAX:
                    raise CorruptIndexError(f"{self.path} is larger than any index can be")
                data = self.path.read_bytes()
            except FileNotFoundError as error:
                raise CorruptIndexError(f"{self.path} is missing") from error
            if len(data) % self.entry.size:
                raise CorruptIndexError(f"{self.path}: {len(data)} bytes are not whole entries")
            words = array("i", data)
            if sys.byteorder == "little":
                words.byteswap()
            self._columns = self._columns_of(words)
            self._written_count = len(self._columns[0])
        return self._columns

    def _columns_of(self, words: array[int]) -> tuple[array[int], array[int]]:
        raise NotImplementedError


class OffsetIndex(_SparseIndex):
    """Offset to position."""

    __slots__ = ()
    entry = struct.Struct(">ii")
    first_code = "i"

    def append(self, offset: int, position: int) -> None:
        """Add an entry; offsets and positions only rise."""
        offsets, positions = self._columns or self._load()
        relative = offset - self.base_offset
        assert not offsets or (relative > offsets[-1] and position > positions[-1])
        offsets.append(relative)
        positions.append(position)

    def lookup(self, offset: int) -> tuple[int, int]:
        """Return (offset, position) of the last entry up to `offset`; the start of the segment if there is none."""
        offsets, positions = self._columns or self._load()
        index = bisect_right(offsets, offset - self.base_offset) - 1
        if index < 0:
            return self.base_offset, 0
        return self.base_offset + offsets[index], positions[index]

    def last_within(self, offset: int, position: int) -> tuple[int, int]:
        """Return (offset, position) of the last entry below `offset` and not above `position`; else the start."""
        offsets, positions = self._columns or self._load()
        index = min(bisect_left(offsets, offset - self.base_offset), bisect_right(positions, position)) - 1
        if index < 0:
            return self.base_offset, 0
        return self.base_offset + offsets[index], positions[index]

    def truncate_to(self, offset: int) -> None:
        """Drop the entries of `offset` and above."""
        self._keep(bisect_left(self._load()[0], offset - self.base_offset))

    @property
    def last(self) -> tuple[int, int]:
        """(offset, position) of the last entry; the start of the segment if there is none."""
        offsets, positions = self._load()
        return (self.base_offset + offsets[-1], positions[-1]) if offsets else (self.base_offset, 0)

    def _columns_of(self, words: array[int]) -> tuple[array[int], array[int]]:
        return words[0::2], words[1::2]


class TimeIndex(_SparseIndex):
    """Timestamp to offset."""

    __slots__ = ()
    entry = struct.Struct(">qi")
    first_code = "q"

    def append(self, timestamp: int, offset: int) -> None:
        """Add an entry if its timestamp is later than all before."""
        timestamps, offsets = self._columns or self._load()
        if timestamp > (timestamps[-1] if timestamps else -1):
            timestamps.append(timestamp)
            offsets.append(offset - self.base_offset)

    def lookup(self, timestamp: int) -> tuple[int, int] | None:
        """Return (timestamp, offset) of the last entry with a timestamp below `timestamp`."""
        timestamps, offsets = self._load()
        index = bisect_left(timestamps, timestamp) - 1
        return (timestamps[index], self.base_offset + offsets[index]) if index >= 0 else None

    def truncate_to(self, offset: int) -> None:
        """Drop the entries of `offset` and above."""
        self._keep(bisect_left(self._load()[1], offset - self.base_offset))

    @property
    def last(self) -> tuple[int, int] | None:
        """(timestamp, offset) of the last entry."""
        timestamps, offsets = self._load()
        return (timestamps[-1], self.base_offset + offsets[-1]) if timestamps else None

    def _columns_of(self, words: array[int]) -> tuple[array[int], array[int]]:
        # A timestamp is two words, the high one first in the file; memory wants them in the machine's order.
        halves = array("i", bytes(8 * (len(words) // 3)))
        low = 0 if sys.byteorder == "little" else 1
        halves[low::2] = words[1::3]
        halves[1 - low :: 2] = words[0::3]
        return array("q", halves.tobytes()), words[2::3]
