"""`log.cleaner.io.max.bytes.per.second`: how fast compaction may read and write, all its threads together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_BYTES_PER_SECOND_MIN = 1.0


class CleanerThrottle:
    """Computes how long to pause for bytes that were read or written. Thread-safe; it never waits itself.

    Unused time is not saved up: the limit must also prevent a burst after an idle hour.
    """

    def __init__(self, bytes_per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        # May be changed at any time.
        self.bytes_per_second = bytes_per_second
        self._clock = clock
        self._lock = threading.Lock()
        # When the limit allows more bytes.
        self._free_at = clock()

    def pause_for(self, byte_count: int) -> float:
        """Count bytes; return the seconds until the limit allows more."""
        with self._lock:
            now = self._clock()
            self._free_at = max(self._free_at, now) + byte_count / max(self.bytes_per_second, _BYTES_PER_SECOND_MIN)
            return self._free_at - now
