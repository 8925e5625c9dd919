"""The TLS handshakes in progress: how many there are, and the threads that compute them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

_THREADS: Final = 2
# Each holds a connection and some memory until its deadline.
HANDSHAKES_MAX: Final = 1000


class Handshakes:
    """The handshakes of all listeners. Everything but the computation happens on the loop."""

    def __init__(self, count_max: int = HANDSHAKES_MAX) -> None:
        self._count_max = count_max
        self._threads: ThreadPoolExecutor | None = None
        self.count = 0

    @property
    def is_full(self) -> bool:
        """Whether a new connection must be refused."""
        return self.count >= self._count_max

    def begun(self) -> None:
        """Count a handshake."""
        self.count += 1

    def ended(self) -> None:
        """Count a handshake that ended in any way."""
        self.count -= 1

    def submit(self, step: Callable[[], None]) -> None:
        """Run a step on another thread. Each handshake runs one step at a time."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="tls-handshake")
        self._threads.submit(step)

    def close(self) -> None:
        """Start no more steps."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
