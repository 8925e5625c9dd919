"""The open files of segments: descriptors, slices of them that a fetch sends, and a bound on how many are open.

Ten thousand partitions must not need thirty thousand descriptors. A segment that opens its file registers with
`OpenFiles`, with the lock of its log held. When more files are open than the bound allows, other segments are asked to
release theirs: descriptor, write map and loaded indexes. Segments that were used since the last look are passed over,
as long as there are better candidates among the few that are looked at. Segments of the same log are closed under the
lock that the caller holds. A segment whose log is busy refuses, so the bound may be exceeded by as many files as are in
use. A segment that is being written has a second descriptor, that of its map.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Final, Protocol

from ottla.broker.storage.errors import FlushError

# How many segments are looked at for each file that is opened: the lock of a log is held meanwhile.
_LOOKS_MAX: Final = 8


class _Descriptor:
    """Closes a descriptor when its only owner is deleted.

    The owner cannot do this itself: weak references still find an object while its `__del__` runs, and would give out
    a descriptor that is being closed.
    """

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)


class OpenFile:
    """A descriptor that stays open as long as anything refers to this object.

    Its file may be renamed or deleted; slices that hold it stay readable.
    """

    __slots__ = ("__weakref__", "_descriptor", "fd", "lent_end")

    def __init__(self, path: Path | str, flags: int = os.O_RDONLY) -> None:
        # The largest end of all slices ever made: no byte below it may change.
        self.lent_end = 0
        self.fd = os.open(path, flags | os.O_CLOEXEC, 0o644)
        self._descriptor = _Descriptor(self.fd)

    def sync(self) -> None:
        """Force what was written to disk; raise FlushError where the disk does not take it."""
        try:
            if hasattr(os, "fdatasync"):
                os.fdatasync(self.fd)
            else:
                os.fsync(self.fd)
        except OSError as error:
            raise FlushError(error.errno, error.strerror) from error


class FileSlice:
    """`length` bytes of a file from `position` on: whole batches. A fetch response refers to them without reading."""

    __slots__ = ("file", "length", "position")

    def __init__(self, file: OpenFile, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self.length = length
        if position + length > file.lent_end:
            file.lent_end = position + length

    def __len__(self) -> int:
        return self.length

    def __repr__(self) -> str:
        return f"FileSlice(fd={self.file.fd}, position={self.position}, length={self.length})"

    def send(self, socket_fd: int, sent: int) -> int:
        """Send what follows after `sent` bytes to a socket, with sendfile; return how many bytes the socket took.

        0 before the end means that the file has become shorter: the connection must be closed.
        """
        return os.sendfile(socket_fd, self.file.fd, self.position + sent, self.length - sent)

    def read_into(self, buffer: memoryview, position: int) -> None:
        """Fill a buffer with the bytes from `position` of the slice on; for listeners that encrypt."""
        filled = 0
        while filled < len(buffer):
            count = os.preadv(self.file.fd, [buffer[filled:]], self.position + position + filled)
            if count == 0:
                raise OSError(f"{self} ends {len(buffer) - filled} bytes early")
            filled += count

    def read(self) -> bytes:
        """Return the bytes; for small slices, and for tests."""
        data = os.pread(self.file.fd, self.length, self.position)
        while len(data) < self.length:
            more = os.pread(self.file.fd, self.length - len(data), self.position + len(data))
            if not more:
                raise OSError(f"{self} ends {self.length - len(data)} bytes early")
            data += more
        return data


def sync_path(path: Path) -> None:
    """Force a file to disk, if it exists."""
    try:
        file = OpenFile(path)
    except FileNotFoundError:
        # The segment has no aborted transactions, or was deleted meanwhile.
        return
    file.sync()


class Releasable(Protocol):
    """Something that keeps files open, and can open them again when it needs them."""

    used: bool
    # Must be held to open and close these files.
    lock: threading.Lock

    def release(self, held: threading.Lock) -> bool:
        """Close the files, without waiting for a lock other than `held`; False if that is not possible now."""
        ...


class OpenFiles:
    """The owners of open files, as a second-chance queue. Thread-safe; its lock is the innermost."""

    def __init__(self, open_max: int) -> None:
        self.open_max = open_max
        self._entries: OrderedDict[int, Releasable] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def opened(self, entry: Releasable) -> None:
        """Note that `entry` has files open, and ask others to release theirs if there are too many.

        The caller holds the lock of `entry`.
        """
        with self._lock:
            self._entries[id(entry)] = entry
        spared: list[Releasable] = []
        for _ in range(_LOOKS_MAX):
            candidate = self._take_surplus()
            if candidate is None:
                return
            if candidate is not entry and candidate.used:
                candidate.used = False
                spared.append(candidate)
            elif candidate is not entry and candidate.release(entry.lock):
                continue
            self._put_back(candidate)
        for candidate in spared:
            if self._take_surplus(candidate) is not None and not candidate.release(entry.lock):
                self._put_back(candidate)

    def closed(self, entry: Releasable) -> None:
        """Note that `entry` has closed its files by itself."""
        with self._lock:
            self._entries.pop(id(entry), None)

    def _take_surplus(self, wanted: Releasable | None = None) -> Releasable | None:
        """Remove and return the first entry, or `wanted`; None if there are not too many, or it is gone."""
        with self._lock:
            if len(self._entries) <= self.open_max:
                return None
            # Another thread may have taken it.
            return self._entries.pop(id(wanted), None) if wanted is not None else self._entries.popitem(last=False)[1]

    def _put_back(self, entry: Releasable) -> None:
        with self._lock:
            self._entries[id(entry)] = entry
