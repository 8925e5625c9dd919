"""SIGTERM, which ends a workload."""

from __future__ import annotations

import signal
import time
from contextlib import suppress
from queue import Empty, SimpleQueue

_LOOK_AGAIN_S = 1.0


class StopSignal:
    """The signal from the moment that this is made, in the main thread."""

    def __init__(self) -> None:
        # An event is not for handlers of signals: the handler may run while the thread that waits holds its lock.
        self._received: SimpleQueue[None] = SimpleQueue()
        signal.signal(signal.SIGTERM, lambda *_: self._received.put(None))

    def wait(self, seconds_max: float) -> None:
        """Wait for it, or so long. It may be another thread that the system interrupts, so this one looks again."""
        deadline = time.monotonic() + seconds_max
        while time.monotonic() < deadline:
            with suppress(Empty):
                self._received.get(timeout=_LOOK_AGAIN_S)
                return
