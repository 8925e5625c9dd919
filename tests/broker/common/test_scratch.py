"""Memory that is seldom used as a whole."""

from __future__ import annotations

import mmap
from pathlib import Path

from ottla.broker.common.scratch import scratch_memory

SIZE = 64 * 1024 * 1024


def resident_bytes() -> int:
    """Return how much of this process is in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def test_only_pages_that_were_written_are_resident() -> None:
    """All of it can be written and read."""
    before = resident_bytes()
    memory = scratch_memory(SIZE)
    memory[-3:] = b"end"

    assert resident_bytes() - before < SIZE // 2
    assert len(memory) == SIZE
    assert bytes(memory[-3:]) == b"end"
