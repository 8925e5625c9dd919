"""Memory that is kept for a long time, and seldom used as a whole."""

from __future__ import annotations

import mmap


def scratch_memory(size: int) -> memoryview:
    """Return writable memory. Unlike those of a new bytearray, its pages are not resident until they are written."""
    return memoryview(mmap.mmap(-1, size))
