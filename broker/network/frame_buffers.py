"""Buffers for large frames, reused instead of allocated for each one.

Touching freshly allocated memory is most of the cost of receiving a large request, so free buffers are kept up to a
limit. A frame's buffer is free when its request has been handled: handlers do not keep views of it.
"""

from __future__ import annotations

import threading

# Below this size allocating costs less than keeping.
POOLED_BYTES_MIN = 32 * 1024


class FrameBuffers:
    """Free buffers by size class, a power of two. Thread-safe."""

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
