"""Events that the controller's thread handles at a later time."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from itertools import count

Event = Callable[[], None]


class Schedule:
    """Events by the time when they are due. For one thread only."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` returns seconds."""
        self._clock = clock
        # The number keeps events with the same time in the order in which they were added.
        self._events: list[tuple[float, int, Event]] = []
        self._order = count()

    def __len__(self) -> int:
        return len(self._events)

    def add(self, delay_seconds: float, event: Event) -> None:
        """Make an event due after some seconds."""
        heapq.heappush(self._events, (self._clock() + delay_seconds, next(self._order), event))

    def seconds_left(self) -> float | None:
        """Return the time until the next event is due; None if there is no event."""
        return max(0.0, self._events[0][0] - self._clock()) if self._events else None

    def take_due(self) -> Event | None:
        """Remove and return the next event if its time has come."""
        if self._events and self._events[0][0] <= self._clock():
            return heapq.heappop(self._events)[2]
        return None

    def clear(self) -> None:
        """Drop all events."""
        self._events.clear()
