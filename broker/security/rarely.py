"""Limits repeated log lines, so that clients cannot fill the log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

_SECONDS: Final = 60.0
# Beyond this number of kinds, no new kind is allowed until some have expired.
_KINDS_MAX: Final = 1024


class Rarely:
    """Allows one event of each kind in a while; a kind is a peer, or what a peer did. Thread-safe."""

    def __init__(self, seconds: float = _SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._last: dict[str, float] = {}

    def allows(self, kind: str) -> bool:
        """Return whether an event is the first of its kind in a while."""
        now = self._clock()
        with self._lock:
            if now - self._last.get(kind, float("-inf")) < self._seconds:
                return False
            if len(self._last) >= _KINDS_MAX:
                self._last = {known: last for known, last in self._last.items() if now - last < self._seconds}
            if len(self._last) < _KINDS_MAX:
                self._last[kind] = now
                return True
            return False
