"""The two clocks of the broker, in milliseconds. Code that depends on time takes one of them as a parameter."""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec import Struct


def monotonic_ms() -> int:
    """Return the time for timers and rates. It never jumps, and has no meaning outside this process."""
    return time.monotonic_ns() // 1_000_000


def wall_clock_ms() -> int:
    """Return the time for timestamps: milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class Clocks(Struct, frozen=True):
    """Both clocks: those of the machine, or those of a test."""

    wall_ms: Callable[[], int] = wall_clock_ms
    monotonic_ms: Callable[[], int] = monotonic_ms
