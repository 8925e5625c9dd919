"""Measurements of a client: totals since its start, and rates, averages and maxima of the last minute."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

# As in Kafka's clients: two windows, of which the older one is complete.
WINDOW_S: Final = 30.0


class _Window:
    """What was recorded from one time on."""

    __slots__ = ("begin", "count", "highest", "total")

    def __init__(self, begin: float) -> None:
        self.begin = begin
        self.count = 0
        self.total = 0.0
        self.highest = 0.0


class Sensor:
    """Takes numbers, such as the size of each batch, and keeps a few sums of them. For one thread."""

    __slots__ = ("_clock", "_earlier", "_now", "count", "total")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.count = 0
        self.total = 0.0
        self._clock = clock
        self._now = _Window(clock())
        self._earlier: _Window | None = None

    def record(self, number: float = 1) -> None:
        """Add a number."""
        self.count += 1
        self.total += number
        window = self._current()
        window.count += 1
        window.total += number
        window.highest = max(number, window.highest)

    def rate(self) -> float:
        """Return the sum of the numbers per second."""
        windows = self._windows()
        # A window that has just begun says little.
        seconds = max(self._clock() - windows[0].begin, 1.0)
        return sum(window.total for window in windows) / seconds

    def average(self) -> float:
        """Return the average of the numbers; 0 if there are none."""
        windows = self._windows()
        count = sum(window.count for window in windows)
        return sum(window.total for window in windows) / count if count else 0.0

    def highest(self) -> float:
        """Return the highest number; 0 if there are none."""
        return max(window.highest for window in self._windows())

    def _current(self) -> _Window:
        now = self._clock()
        age = now - self._now.begin
        if age >= WINDOW_S:
            # A window that ended long ago says nothing about the last minute.
            self._earlier = self._now if age < 2 * WINDOW_S else None
            self._now = _Window(now)
        return self._now

    def _windows(self) -> list[_Window]:
        current = self._current()
        return [current] if self._earlier is None else [self._earlier, current]
