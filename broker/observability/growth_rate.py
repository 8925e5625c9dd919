"""How fast a counter grows, for metrics that Kafka publishes as rates and not as counters."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

# Kafka's rates also cover about a minute.
_WINDOW_SECONDS = 60.0
# Readings closer together than this are not kept, so frequent callers do not fill the memory.
_READINGS_APART_SECONDS = 1.0


class GrowthRate:
    """The growth of a number per second over the last minute, or since this object was made.

    Nothing is recorded between calls: each call keeps a reading of the number, and later calls measure from it.
    """

    def __init__(self, number: Callable[[], float], clock: Callable[[], float] = time.monotonic) -> None:
        self._number = number
        self._clock = clock
        self._readings: deque[tuple[float, float]] = deque([(clock(), number())])

    def __call__(self) -> float:
        """Return the rate."""
        now, value = self._clock(), self._number()
        readings = self._readings
        while len(readings) > 1 and readings[1][0] <= now - _WINDOW_SECONDS:
            readings.popleft()
        since, before = readings[0]
        if now - readings[-1][0] >= _READINGS_APART_SECONDS:
            readings.append((now, value))
        return (value - before) / (now - since) if now > since else 0.0
