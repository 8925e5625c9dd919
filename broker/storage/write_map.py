"""The map through which the active segment is written.

The file is preallocated ahead of the writes with `posix_fallocate`, so a full disk is an OSError before a byte is
written. (Storing into a map of a hole on a full disk is SIGBUS: the process dies without an exception.) The part
being written is mapped as a window. What was written stays resident until the window moves on, so it is small. Until
`close` trims it, the file is longer than what was written and ends in zeros: a batch cannot begin there, so recovery
cuts them off.

The reserved space grows with the segment, so that ten thousand small partitions do not reserve a whole disk. On a disk
that is nearly full, only what the append needs is reserved. From 4 MiB on, windows are aligned for huge pages and ask
for them: one fault then serves 2 MiB, and writing does not cost more in small windows than in one large one
(docs/adr/0002).

A store into a page that the system cannot provide ends the process with SIGBUS: because the disk fails under a page
that must be read first, the file system has given up, or the file was truncated. So the pages are requested before each
store (MADV_POPULATE_WRITE); a failure is then an OSError that takes one directory offline. That costs about 1
microsecond per append, as much as a positioned write of 170 bytes and far less than one of 4 KiB. A failure between the
request and the store is not covered.

Batches of 48 KiB and more bypass the map, with a positioned write to the same pages: the call costs less than the page
faults that it saves, and other threads run while it copies.

While a file is written, the kernel must not read ahead in it: when followers read its end, the kernel would fill the
reserved space behind it with zeros, page by page (docs/adr/0005).
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import struct
import sys

from ottla.broker.storage.open_files import OpenFile
from ottla.protocol.records import BATCH_LENGTH_OVERHEAD

_PAGE = mmap.ALLOCATIONGRANULARITY
_HUGE_PAGE = 2 * 1024 * 1024
_RESERVE_BYTES_MIN = 64 * 1024
_RESERVE_BYTES_MAX = 64 * 1024 * 1024
_WINDOW_BYTES_MAX = 8 * 1024 * 1024
_DIRECT_BYTES = 48 * 1024

# Base offset, batch length and leader epoch: the fields before the magic, outside the CRC.
_BATCH_BEGIN = struct.Struct(">qii")
_BATCH_BEGIN_BYTES = _BATCH_BEGIN.size


def _known(advice: int) -> int | None:
    """Return the advice if this kernel supports it."""
    with mmap.mmap(-1, mmap.PAGESIZE) as probe:
        try:
            probe.madvise(advice)
        except (OSError, AttributeError):
            return None
    return advice


# MADV_POPULATE_WRITE: Python has no name for it; Linux 5.14 and later support it.
_POPULATE_WRITE = _known(23) if sys.platform == "linux" else None
# The errors that mean that a store would raise SIGBUS: no page, or one in broken memory.
_NO_PAGE = (errno.EFAULT, getattr(errno, "EHWPOISON", 133))


def _have_pages(window: mmap.mmap, begin: int, size: int) -> None:
    """Make the pages writable; raise an I/O error if a store would raise SIGBUS."""
    if _POPULATE_WRITE is None:
        return
    first = begin - begin % mmap.PAGESIZE
    try:
        window.madvise(_POPULATE_WRITE, first, begin + size - first)
    except OSError as error:
        if error.errno not in _NO_PAGE:
            raise
        raise OSError(errno.EIO, "a page of the file cannot be written to") from error


class WriteMap:
    """Writes one file, each byte once. Not thread-safe: the log's lock protects it."""

    __slots__ = ("_reserved_end", "_size_max", "_window", "_window_begin", "_window_end", "file")

    def __init__(self, file: OpenFile, size_max: int) -> None:
        self.file = file
        _set_read_ahead(file, wanted=False)
        # Reserving stops here unless a single append needs more.
        self._size_max = size_max
        self._reserved_end = os.fstat(file.fd).st_size
        self._window: mmap.mmap | None = None
        self._window_begin = 0
        self._window_end = 0

    def write(self, position: int, data: memoryview | bytes) -> None:
        """Store `data` at `position`. Raises OSError, with the file as it was, when the disk has no room."""
        end = position + len(data)
        if len(data) >= _DIRECT_BYTES:
            self._write_directly(position, end, data)
            return
        window = self._window
        if window is None or end > self._window_end:
            window = self._extend(position, end)
        begin = position - self._window_begin
        _have_pages(window, begin, len(data))
        window[begin : begin + len(data)] = data

    def write_batch(self, position: int, batch: memoryview, base_offset: int, leader_epoch: int) -> None:
        """Store a batch with another base offset and leader epoch; otherwise like `write`.

        The header is written last. A process that dies in between leaves zeros there, or a batch that fails its CRC,
        but never a whole batch with the producer's offset and epoch.
        """
        size = len(batch)
        end = position + size
        if size >= _DIRECT_BYTES:
            first = _BATCH_BEGIN.pack(base_offset, size - BATCH_LENGTH_OVERHEAD, leader_epoch)
            self._write_directly(position, end, first, batch[_BATCH_BEGIN_BYTES:])
            return
        window = self._window
        if window is None or end > self._window_end:
            window = self._extend(position, end)
        begin = position - self._window_begin
        _have_pages(window, begin, size)
        window[begin + _BATCH_BEGIN_BYTES : begin + size] = batch[_BATCH_BEGIN_BYTES:]
        _BATCH_BEGIN.pack_into(window, begin, base_offset, size - BATCH_LENGTH_OVERHEAD, leader_epoch)

    def close(self, size: int) -> None:
        """Unmap, and trim the file to `size`."""
        self._unmap()
        if self._reserved_end != size:
            os.ftruncate(self.file.fd, size)
            self._reserved_end = size
        _set_read_ahead(self.file, wanted=True)

    def _unmap(self) -> None:
        if self._window is not None:
            self._window.close()
            self._window = None
            self._window_end = 0

    def _write_directly(self, position: int, end: int, *pieces: memoryview | bytes) -> None:
        if end > self._reserved_end:
            self._reserve_ahead(position, end)
        done = position + os.pwritev(self.file.fd, pieces, position)
        # The space is reserved, so this is rare: a write may stop at any byte without an error.
        if done < end:
            rest = memoryview(b"".join(pieces))
            while done < end:
                done += os.pwrite(self.file.fd, rest[done - position :], done)

    def _extend(self, position: int, end: int) -> mmap.mmap:
        """Reserve space for [position, end) and more, and map it."""
        if end > self._reserved_end:
            self._reserve_ahead(position, end)
        step = self._reserved_end - position
        alignment = _HUGE_PAGE if step >= 2 * _HUGE_PAGE else _PAGE
        self._unmap()
        begin = position - position % alignment
        window_end = min(self._reserved_end, begin + _WINDOW_BYTES_MAX)
        window = mmap.mmap(self.file.fd, window_end - begin, offset=begin)
        if alignment == _HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):  # a kernel without them maps small pages
                window.madvise(mmap.MADV_HUGEPAGE)
        self._window = window
        self._window_begin = begin
        self._window_end = window_end
        return window

    def _reserve_ahead(self, position: int, needed_end: int) -> None:
        """Reserve as much space as was written, or more; if the disk has no room for that, up to the needed end."""
        fd, begin = self.file.fd, self._reserved_end
        step = min(max(position, _RESERVE_BYTES_MIN), _RESERVE_BYTES_MAX)
        wanted_end = max(min(position + step, self._size_max), needed_end)
        wanted_end += -wanted_end % _PAGE
        needed_end += -needed_end % _PAGE
        for end in (wanted_end, needed_end):
            try:
                _allocate(fd, begin, end)
            except OSError as error:
                # Give back what was reserved before the disk was full.
                os.ftruncate(fd, begin)
                if end == needed_end or error.errno != errno.ENOSPC:
                    raise
            else:
                self._reserved_end = end
                return


def _allocate(fd: int, begin: int, end: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, begin, end - begin)
        return
    zeros = bytes(_RESERVE_BYTES_MIN)
    while begin < end:
        begin += os.pwrite(fd, zeros[: end - begin], begin)


def _set_read_ahead(file: OpenFile, *, wanted: bool) -> None:
    if hasattr(os, "posix_fadvise"):
        with contextlib.suppress(OSError):  # it is only advice; not every file system supports it
            os.posix_fadvise(file.fd, 0, 0, os.POSIX_FADV_NORMAL if wanted else os.POSIX_FADV_RANDOM)
