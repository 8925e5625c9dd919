"""Bytes of a segment file, named and not read: what a fetch answers with."""

from __future__ import annotations

import os
from pathlib import Path


class _Descriptor:
    """Closes a descriptor when its only owner goes.

    Not the owner itself: weak references to an object still find it while its `__del__` runs, and would hand out a
    descriptor that is being closed.
    """

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)


class OpenFile:
    """A descriptor that lives as long as anybody refers to it.

    A cache may forget it, and its file may be renamed or deleted: slices that hold it stay readable.
    """

    __slots__ = ("__weakref__", "_descriptor", "fd", "lent_end")

    def __init__(self, path: Path | str, flags: int = os.O_RDONLY) -> None:
        # Where the furthest slice ends that was ever handed out: below this no byte may change.
        self.lent_end = 0
        self.fd = os.open(path, flags | os.O_CLOEXEC, 0o644)
        self._descriptor = _Descriptor(self.fd)


class FileSlice:
    """`length` bytes of a file from `position` on; whole batches."""

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
        """Hand the rest after `sent` bytes to a socket without copying it here; return how many bytes it took.

        0 before the end means that the file is shorter than it was: the connection cannot be saved.
        """
        return os.sendfile(socket_fd, self.file.fd, self.position + sent, self.length - sent)

    def read_into(self, buffer: memoryview, position: int) -> None:
        """Fill a buffer with the bytes from a position of the slice on; for listeners that must encrypt them."""
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
