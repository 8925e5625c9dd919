"""The map through which the active segment is written.

The file is preallocated ahead of the writes with `posix_fallocate`, so a full disk is an OSError before a byte is
written. (Storing into a map of a hole on a full disk is SIGBUS: the process dies without an exception.) The part
being written is mapped as a window. Until `close` trims it, the file is longer than what was written and ends in
zeros: a batch cannot begin there, so recovery cuts them off.

What is reserved grows with the segment, so that ten thousand small partitions do not reserve a disk between them.
From 4 MiB on, windows are aligned for huge pages and ask for them: one fault then serves 2 MiB, and writing costs
less than half of what it does with a fault per 4 KiB (docs/adr/0002).
"""

from __future__ import annotations

import contextlib
import mmap
import os

from ottla.broker.storage.file_slice import OpenFile

_PAGE = mmap.ALLOCATIONGRANULARITY
_HUGE_PAGE = 2 * 1024 * 1024
_RESERVE_BYTES_MIN = 64 * 1024
_RESERVE_BYTES_MAX = 64 * 1024 * 1024


class WriteMap:
    """Writes one file, each byte once. Not thread-safe: the log's lock protects it."""

    __slots__ = ("_reserved_end", "_size_max", "_window", "_window_begin", "_window_end", "file")

    def __init__(self, file: OpenFile, size_max: int) -> None:
        self.file = file
        # Reserving stops here unless a single append needs more.
        self._size_max = size_max
        self._reserved_end = os.fstat(file.fd).st_size
        self._window: mmap.mmap | None = None
        self._window_begin = 0
        self._window_end = 0

    def write(self, position: int, data: memoryview | bytes) -> tuple[mmap.mmap, int]:
        """Store `data` at `position`; return the window and where the data lies in it, to patch headers there.

        Raises OSError, with the file as it was below `position`, when the disk has no room.
        """
        size = len(data)
        window = self._window
        if window is None or position + size > self._window_end:
            window = self._extend(position, position + size)
        begin = position - self._window_begin
        window[begin : begin + size] = data
        return window, begin

    def close(self, size: int) -> None:
        """Unmap, and trim the file to `size`."""
        self._unmap()
        if self._reserved_end != size:
            os.ftruncate(self.file.fd, size)
            self._reserved_end = size

    def _unmap(self) -> None:
        if self._window is not None:
            self._window.close()
            self._window = None
            self._window_end = 0

    def _extend(self, position: int, end: int) -> mmap.mmap:
        """Reserve disk for more than [position, end), and map it."""
        step = min(max(position, _RESERVE_BYTES_MIN), _RESERVE_BYTES_MAX)
        alignment = _HUGE_PAGE if step >= 2 * _HUGE_PAGE else _PAGE
        if end > self._reserved_end:
            target = max(min(position + step, self._size_max), end)
            target += -target % _PAGE
            _reserve(self.file.fd, self._reserved_end, target)
            self._reserved_end = target
        self._unmap()
        begin = position - position % alignment
        window = mmap.mmap(self.file.fd, self._reserved_end - begin, offset=begin)
        if alignment == _HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):  # a kernel without them maps small pages
                window.madvise(mmap.MADV_HUGEPAGE)
        self._window = window
        self._window_begin = begin
        self._window_end = self._reserved_end
        return window


def _reserve(fd: int, begin: int, end: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, begin, end - begin)
        return
    zeros = bytes(_RESERVE_BYTES_MIN)
    while begin < end:
        begin += os.pwrite(fd, zeros[: end - begin], begin)
