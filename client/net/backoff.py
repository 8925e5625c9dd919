"""Exponential backoff with a limit and jitter."""

from __future__ import annotations

import random
from typing import Final

_JITTER: Final = 0.2
# After this many doublings the limit has been reached for certain.
_DOUBLINGS_MAX: Final = 30


class Backoff:
    """The waits between retries of one operation; call `reset` on success."""

    __slots__ = ("_first", "_limit", "failures")

    def __init__(self, first_ms: int, limit_ms: int) -> None:
        self._first = first_ms / 1000
        self._limit = limit_ms / 1000
        self.failures = 0

    def next(self) -> float:
        """Count a failure; return the seconds to wait after it."""
        wait = min(self._first * (1 << min(self.failures, _DOUBLINGS_MAX)), self._limit)
        self.failures += 1
        return wait * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 - a pause

    def reset(self) -> None:
        """Start over with the shortest wait."""
        self.failures = 0
