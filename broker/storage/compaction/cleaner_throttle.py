"""`log.cleaner.io.max.bytes.per.second`: how fast compaction may read and write, all its threads together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_BYTES_PER_SECOND_MIN = 1.0


class CleanerThrottle:
    """Says how long to pause for bytes that were just moved. Thread-safe; it never waits itself.

    Time that nobody used is not saved up: a burst after an idle hour would be what the limit is there to prevent.
    """

    def __init__(self, bytes_per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        # May be set anew at any time.
        self.bytes_per_second = bytes_per_second
        self._clock = clock
        self._lock = threading.Lock()
        # When all that was moved so far is paid for.
        self._free_at = clock()

    def pause_for(self, byte_count: int) -> float:
        """Note that bytes were moved; return the seconds until more may be."""
        with self._lock:
            now = self._clock()
            self._free_at = max(self._free_at, now) + byte_count / max(self.bytes_per_second, _BYTES_PER_SECOND_MIN)
            return self._free_at - now
