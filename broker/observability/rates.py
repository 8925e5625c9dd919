"""How fast a number grows, for metrics that Kafka gives as rates and shares instead of counters."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

# Kafka's rates are of about a minute, too.
_WINDOW_SECONDS = 60.0
# Whoever asks all the time does not fill the memory: a look so soon after another one is not kept.
_LOOKS_APART_SECONDS = 1.0


class Rate:
    """The growth per second of a number over the last minute, as seen by those who ask; before, since it was made.

    Nothing runs in between: each question leaves a mark that later ones are measured from.
    """

    def __init__(self, number: Callable[[], float], clock: Callable[[], float] = time.monotonic) -> None:
        self._number = number
        self._clock = clock
        self._marks: deque[tuple[float, float]] = deque([(clock(), number())])

    def __call__(self) -> float:
        """Return the rate."""
        now, value = self._clock(), self._number()
        marks = self._marks
        while len(marks) > 1 and marks[1][0] <= now - _WINDOW_SECONDS:
            marks.popleft()
        since, before = marks[0]
        if now - marks[-1][0] >= _LOOKS_APART_SECONDS:
            marks.append((now, value))
        return (value - before) / (now - since) if now > since else 0.0
