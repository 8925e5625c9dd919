"""How often somebody may try passwords."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

_FREE: Final = 5
_PAUSE_S_MAX: Final = 300.0
_KEPT_MAX: Final = 4096


class LoginAttempts:
    """Counts failed logins by user and by address; after a few, each failure doubles the pause before the next try."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, kept_max: int = _KEPT_MAX) -> None:
        self._clock = clock
        self._kept_max = kept_max
        # The number of failures, and when the next try is allowed.
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def pause_s(self, *keys: str) -> float:
        """Return how long to wait before the next try; 0 if it is allowed now."""
        now = self._clock()
        return max(0.0, *(self._failures.get(key, (0, now))[1] - now for key in keys))

    def failed(self, *keys: str) -> None:
        """Count a failure for each key."""
        now = self._clock()
        for key in keys:
            count = self._failures.pop(key, (0, 0.0))[0] + 1
            pause = min(_PAUSE_S_MAX, 2.0 ** (count - _FREE)) if count >= _FREE else 0.0
            self._failures[key] = (count, now + pause)
        while len(self._failures) > self._kept_max:
            self._failures.popitem(last=False)

    def succeeded(self, *keys: str) -> None:
        """Forget the failures of these keys."""
        for key in keys:
            self._failures.pop(key, None)
