"""How often somebody may try passwords."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

_PAUSE_S_MAX: Final = 60.0
_FORGOTTEN_S: Final = 15 * 60.0
_KEPT_MAX: Final = 4096


class _Failures(NamedTuple):
    failures: int
    last_at: float
    pause_s: float


class LoginAttempts:
    """Counts failed logins by name: after the free ones, each failure doubles the pause before the next try.

    A quarter of an hour without a failure forgets them. The names that failed longest ago are dropped first, so made-up
    names do not fill the memory.
    """

    def __init__(self, free: int, clock: Callable[[], float] = time.monotonic, kept_max: int = _KEPT_MAX) -> None:
        self._free = free
        self._clock = clock
        self._kept_max = kept_max
        self._failures: OrderedDict[str, _Failures] = OrderedDict()

    def pause_s(self, name: str) -> float:
        """Return how long to wait before the next try; 0 if it is allowed now."""
        known = self._failures.get(name)
        return 0.0 if known is None else max(0.0, known.last_at + known.pause_s - self._clock())

    def failed(self, name: str) -> None:
        """Count a failure."""
        now = self._clock()
        known = self._failures.pop(name, None)
        count = 1 if known is None or now - known.last_at > _FORGOTTEN_S else known.failures + 1
        pause_s = min(_PAUSE_S_MAX, 2.0 ** min(count - self._free, 10)) if count >= self._free else 0.0
        self._failures[name] = _Failures(count, now, pause_s)
        while len(self._failures) > self._kept_max:
            self._failures.popitem(last=False)

    def succeeded(self, name: str) -> None:
        """Forget the failures of a name."""
        self._failures.pop(name, None)
