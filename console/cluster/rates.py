"""Rates from numbers that only grow, sampled whenever somebody looks."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Final, NamedTuple

# A rate is over at least the first and at most the second of these.
_WINDOW_S_MIN: Final = 1.0
_WINDOW_S_MAX: Final = 30.0
_SAMPLES_MAX: Final = 32
_KEYS_MAX: Final = 20_000


class Growth(NamedTuple):
    """How much a number grew, and in which time."""

    amount: int
    elapsed_s: float


class Rates:
    """Keeps a few samples of each number; the numbers that nobody looked at for longest are dropped."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, keys_max: int = _KEYS_MAX) -> None:
        self._clock = clock
        self._keys_max = keys_max
        self._samples: OrderedDict[Hashable, deque[tuple[float, int]]] = OrderedDict()

    def per_second(self, key: Hashable, value: int) -> float | None:
        """Add a sample, and return the growth a second; None until there are two samples."""
        growth = self.growth(key, value)
        return None if growth is None else growth.amount / growth.elapsed_s

    def growth(self, key: Hashable, value: int) -> Growth | None:
        """Add a sample, and return the growth since the first one that is kept; None until there are two samples."""
        now = self._clock()
        samples = self._samples.setdefault(key, deque(maxlen=_SAMPLES_MAX))
        self._samples.move_to_end(key)
        while len(self._samples) > self._keys_max:
            self._samples.popitem(last=False)
        if samples and value < samples[-1][1]:
            samples.clear()  # the broker was restarted, or the topic was created again
        if not samples or now - samples[-1][0] >= _WINDOW_S_MIN:
            samples.append((now, value))
        while len(samples) > 2 and now - samples[0][0] > _WINDOW_S_MAX:
            samples.popleft()
        first_at, first = samples[0]
        elapsed = now - first_at
        return Growth(value - first, elapsed) if elapsed >= _WINDOW_S_MIN else None
