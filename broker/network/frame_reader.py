"""Reads frames from a non-blocking socket, each into its own memory.

Small frames come many at a time through a shared scratch buffer. A large frame that has not arrived yet gets its own
buffer, and the rest is received straight into it. A size is checked before anything is allocated. Beyond a megabyte,
the buffer grows with what arrives, so that a size alone cannot make us allocate more than that. If all connections
together use too much memory, the reader waits: see `awaits_memory`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from ottla.protocol.errors import FrameError
from ottla.protocol.frame import FRAME_SIZE, SIZE_BYTES, frame_size, refused_size

SCRATCH_BYTES = 64 * 1024
_TRUSTED_BYTES = 1024 * 1024
# Below this size allocating costs less than keeping.
_POOLED_BYTES_MIN = 32 * 1024
# Frames that wait for memory get another chance when this share of the limit is in use.
_RESUME_SHARE = 0.75
# A request starts with the key of its API.
_API_BYTES = 2


class Frame(Struct, frozen=True, eq=False):
    """The body of a frame. If `buffer` is not None, return it to the pool after use."""

    body: memoryview | bytes
    buffer: bytearray | None


class FrameBuffers:
    """Buffers of large frames, by size class, a power of two. Thread-safe.

    Touching freshly allocated memory is most of the cost of receiving a large request, so free buffers are kept up to a
    limit. A frame's buffer is free when its request has been handled: handlers do not keep views of it.

    Buffers in use are limited as well, over all connections, from the first bytes of a frame to the end of its request.
    A frame that gets no buffer waits, and its client with it. One frame at a time may go beyond the limit: otherwise
    frames that have arrived in part could all wait for each other.
    """

    def __init__(
        self, free_bytes_max: int, used_bytes_max: float = float("inf"), on_room: Callable[[], None] = lambda: None
    ) -> None:
        """`on_room` is called when a frame that got no buffer may try again."""
        self._free_bytes_max = free_bytes_max
        self._used_bytes_max = used_bytes_max
        self._on_room = on_room
        self._lock = threading.Lock()
        self._free: dict[int, list[bytearray]] = {}
        self._free_bytes = 0
        self._used_bytes = 0
        # The frame that may go beyond the limit.
        self._beyond: object = None
        self._is_awaited = False

    @property
    def used_bytes(self) -> int:
        """The memory of frames that are being received, wait for a worker or are being handled."""
        return self._used_bytes

    def take(self, size: int, frame: object) -> bytearray | None:
        """Return a buffer of at least `size` bytes for a frame; None if too much memory is in use."""
        capacity = 1 << (size - 1).bit_length()
        with self._lock:
            if self._used_bytes + capacity > self._used_bytes_max:
                if self._beyond is not None and self._beyond is not frame:
                    self._is_awaited = True
                    return None
                self._beyond = frame
            self._used_bytes += capacity
            free = self._free.get(capacity)
            if free:
                self._free_bytes -= capacity
                return free.pop()
        return bytearray(capacity)

    def give_back(self, buffer: bytearray) -> None:
        """Keep a buffer for later, unless enough are kept."""
        capacity = len(buffer)
        with self._lock:
            self._used_bytes -= capacity
            if self._free_bytes + capacity <= self._free_bytes_max:
                self._free.setdefault(capacity, []).append(buffer)
                self._free_bytes += capacity
            # Another frame may go beyond the limit now, so those that wait are told, however much is in use.
            is_free = self._beyond is not None and self._used_bytes <= self._used_bytes_max
            if is_free:
                self._beyond = None
            has_room = is_free or self._used_bytes <= self._used_bytes_max * _RESUME_SHARE
            if not self._is_awaited or not has_room:
                return
            self._is_awaited = False
        self._on_room()


class ByteSource(Protocol):
    """A socket, or a replacement for one."""

    def recv_into(self, buffer: memoryview, /) -> int:
        """Receive into a buffer; 0 at the end. Raises BlockingIOError if there is no data yet."""
        ...


class FrameReader:
    """The frames of one connection. One thread at a time reads: the loop, whose scratch buffer it has, or a worker."""

    __slots__ = (
        "_buffer",
        "_filled",
        "_frame",
        "_held",
        "_scratch",
        "_size",
        "_target",
        "any_size",
        "awaits_memory",
        "buffers",
        "max_size",
        "max_size_of",
    )

    def __init__(self, scratch: memoryview, buffers: FrameBuffers, max_size: int) -> None:
        self._scratch = scratch
        self.buffers = buffers
        # The thread that authenticates the client increases it, before the client knows.
        self.max_size = max_size
        # The size that requests of all APIs may have, and the one of an API by its key.
        self.any_size = max_size
        self.max_size_of: Callable[[int], int] = lambda _api_key: self.max_size
        # The start of a frame that is small and incomplete, or whose size is incomplete.
        self._held = b""
        # The frame that is being received into its own memory: as much of it as the buffer holds so far.
        self._target: memoryview | None = None
        self._buffer: bytearray | None = None
        self._size = 0
        self._filled = 0
        # Stands for that frame when memory is asked for.
        self._frame: object = None
        # Whether there was no memory to go on. Nothing may be read before `retry` has found some.
        self.awaits_memory = False

    @property
    def is_within_frame(self) -> bool:
        """Whether a frame has started to arrive and is incomplete."""
        return bool(self._held) or self._target is not None

    @property
    def rest_bytes(self) -> int:
        """How many bytes are still to come of a large frame that has begun; 0 if there is none."""
        return self._size - self._filled if self._target is not None else 0

    @property
    def first_bytes(self) -> bytes:
        """The start of what is being received, which shows the protocol that a stranger speaks."""
        return self._held[:16]

    def read(self, source: ByteSource, scratch: memoryview | None = None) -> tuple[list[Frame], int] | None:
        """Receive once; return the frames that are complete now and the number of bytes received, or None at the end.

        A thread other than the loop's brings its own scratch buffer. Raises FrameError for an impossible size, and
        OSError as the socket does.
        """
        if self._target is not None:
            return self._read_target(self._target, source)
        if scratch is None:
            scratch = self._scratch
        # What is held is less than half of the buffer: larger frames get their own.
        held = len(self._held)
        received = source.recv_into(scratch[held:] if held else scratch)
        if received == 0:
            return None
        if held:
            scratch[:held] = self._held
            self._held = b""
        return self._split(scratch[: held + received]), received

    def _split(self, data: memoryview | bytes) -> list[Frame]:
        frames: list[Frame] = []
        position, end, max_size = 0, len(data), self.max_size
        while end - position >= SIZE_BYTES:
            (size,) = FRAME_SIZE.unpack_from(data, position)
            if not 0 <= size <= max_size:
                self._held = bytes(data[position : position + 16])
                raise refused_size(size, max_size)
            body = position + SIZE_BYTES
            if size > self.any_size:
                if end - body < _API_BYTES:
                    break
                self._check_api(data, position, size)
            if body + size > end:
                if size < _POOLED_BYTES_MIN:
                    break
                if self._begin(size, data[body:end]):
                    return frames
                self.awaits_memory = True
                break
            frames.append(Frame(bytes(data[body : body + size]), None))
            position = body + size
        self._held = bytes(data[position:end])
        return frames

    def _check_api(self, data: memoryview | bytes, position: int, size: int) -> None:
        """Raise FrameError if requests of the frame's API must be smaller."""
        body = position + SIZE_BYTES
        limit = self.max_size_of(int.from_bytes(data[body : body + _API_BYTES]))
        if size > limit:
            self._held = bytes(data[position : position + 16])
            raise FrameError(
                f"frame of {size} bytes is above the limit of {limit} bytes for all but Produce: "
                "split the request, or raise ottla.request.max.bytes"
            )

    def _begin(self, size: int, first: memoryview | bytes) -> bool:
        self._frame = object()
        buffer = self.buffers.take(min(size, _TRUSTED_BYTES), self._frame)
        if buffer is None:
            return False
        self._size = size
        self._buffer = buffer
        self._target = memoryview(buffer)[:size]
        self._filled = len(first)
        self._target[: self._filled] = first
        return True

    def retry(self) -> bool:
        """Try again to get memory; return whether reading can go on."""
        if self._target is not None:
            self.awaits_memory = not self._grow(self._target)
        elif self._begin(frame_size(self._held, self.max_size), self._held[SIZE_BYTES:]):
            self.awaits_memory = False
            self._held = b""
        return not self.awaits_memory

    def close(self) -> None:
        """Give back the memory of a frame that will never be complete."""
        if self._buffer is not None:
            self.buffers.give_back(self._buffer)
            self._target = self._buffer = None

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
            self.awaits_memory = not self._grow(target)
        return [], received

    def _grow(self, full: memoryview) -> bool:
        assert self._buffer is not None
        larger = self.buffers.take(min(self._size, 2 * len(self._buffer)), self._frame)
        if larger is None:
            return False
        larger[: self._filled] = full
        full.release()
        self.buffers.give_back(self._buffer)
        self._buffer = larger
        self._target = memoryview(larger)[: self._size]
        return True
