"""Reads frames from a non-blocking socket, each into its own memory.

Small frames come many at a time through a shared scratch buffer. A large frame that has not arrived yet gets its own
buffer, and the rest is received straight into it. A size is checked before anything is allocated. Beyond a megabyte,
the buffer grows with what arrives, so that a size alone cannot make us allocate more than that.
"""

from __future__ import annotations

import threading
from typing import NamedTuple, Protocol

from ottla.protocol.errors import FrameError
from ottla.protocol.frame import SIZE_BYTES, frame_size

SCRATCH_BYTES = 64 * 1024
_TRUSTED_BYTES = 1024 * 1024
# Below this size allocating costs less than keeping.
_POOLED_BYTES_MIN = 32 * 1024


class Frame(NamedTuple):
    """The body of a frame. If `buffer` is not None, return it to the pool after use."""

    body: memoryview | bytes
    buffer: bytearray | None


class FrameBuffers:
    """Free buffers of large frames, by size class, a power of two. Thread-safe.

    Touching freshly allocated memory is most of the cost of receiving a large request, so free buffers are kept up to a
    limit. A frame's buffer is free when its request has been handled: handlers do not keep views of it.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._free: dict[int, list[bytearray]] = {}
        self._bytes = 0
        self._lock = threading.Lock()

    def take(self, size: int) -> bytearray:
        """Return a buffer of at least `size` bytes."""
        capacity = 1 << (size - 1).bit_length()
        with self._lock:
            free = self._free.get(capacity)
            if free:
                self._bytes -= capacity
                return free.pop()
        return bytearray(capacity)

    def give_back(self, buffer: bytearray) -> None:
        """Keep a buffer for later, unless enough are kept."""
        capacity = len(buffer)
        with self._lock:
            if self._bytes + capacity <= self._bytes_max:
                self._free.setdefault(capacity, []).append(buffer)
                self._bytes += capacity


class ByteSource(Protocol):
    """A socket, or a replacement for one."""

    def recv_into(self, buffer: memoryview, /) -> int:
        """Receive into a buffer; 0 at the end. Raises BlockingIOError if there is no data yet."""
        ...


class FrameReader:
    """The frames of one connection. Used on the loop only, which also owns the scratch buffer."""

    __slots__ = ("_buffer", "_filled", "_held", "_scratch", "_size", "_target", "buffers", "max_size")

    def __init__(self, scratch: memoryview, buffers: FrameBuffers, max_size: int) -> None:
        self._scratch = scratch
        self.buffers = buffers
        # The thread that authenticates the client increases it, before the client knows.
        self.max_size = max_size
        # The start of a frame that is small and incomplete, or whose size is incomplete.
        self._held = b""
        # The frame that is being received into its own memory: as much of it as the buffer holds so far.
        self._target: memoryview | None = None
        self._buffer: bytearray | None = None
        self._size = 0
        self._filled = 0

    @property
    def is_within_frame(self) -> bool:
        """Whether a frame has started to arrive and is incomplete."""
        return bool(self._held) or self._target is not None

    @property
    def first_bytes(self) -> bytes:
        """The start of what is being received, which shows the protocol that a stranger speaks."""
        return self._held[:16]

    def read(self, source: ByteSource) -> tuple[list[Frame], int] | None:
        """Receive once; return the frames that are complete now and the number of bytes received, or None at the end.

        Raises FrameError for an impossible size, and OSError as the socket does.
        """
        if self._target is not None:
            return self._read_target(self._target, source)
        received = source.recv_into(self._scratch)
        if received == 0:
            return None
        if self._held:
            data: memoryview | bytes = self._held + self._scratch[:received]
            self._held = b""
        else:
            data = self._scratch[:received]
        return self._split(data), received

    def _split(self, data: memoryview | bytes) -> list[Frame]:
        frames: list[Frame] = []
        position, end = 0, len(data)
        while end - position >= SIZE_BYTES:
            try:
                size = frame_size(data[position : position + SIZE_BYTES], self.max_size)
            except FrameError:
                self._held = bytes(data[position : position + 16])
                raise
            body = position + SIZE_BYTES
            if body + size > end:
                if size >= _POOLED_BYTES_MIN:
                    self._begin(size, data[body:end])
                    return frames
                break
            frames.append(Frame(bytes(data[body : body + size]), None))
            position = body + size
        self._held = bytes(data[position:end])
        return frames

    def _begin(self, size: int, first: memoryview | bytes) -> None:
        self._size = size
        self._buffer = self.buffers.take(min(size, _TRUSTED_BYTES))
        self._target = memoryview(self._buffer)[:size]
        self._filled = len(first)
        self._target[: self._filled] = first

    def _read_target(self, target: memoryview, source: ByteSource) -> tuple[list[Frame], int] | None:
        received = source.recv_into(target[self._filled :])
        if received == 0:
            return None
        self._filled += received
        if self._filled == self._size:
            frame = Frame(target, self._buffer)
            self._target = self._buffer = None
            return [frame], received
        if self._filled == len(target):
            self._grow(target)
        return [], received

    def _grow(self, full: memoryview) -> None:
        assert self._buffer is not None
        larger = self.buffers.take(min(self._size, 2 * len(self._buffer)))
        larger[: self._filled] = full
        full.release()
        self.buffers.give_back(self._buffer)
        self._buffer = larger
        self._target = memoryview(larger)[: self._size]
