"""The TLS handshakes in progress at a listener: how many there are, and the threads that compute them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import structlog

from ottla.broker.network.connection import Connection
from ottla.broker.security.rarely import Rarely

log = structlog.get_logger(__name__)

_THREADS: Final = 2
# Each holds a connection and some memory until its deadline.
HANDSHAKES_MAX: Final = 1000


class Handshakes:
    """The handshakes of one listener. Everything but the computation happens on the loop.

    A client needs no right to begin one, so any number may come and stay silent. If there are too many, the oldest one
    is dropped: an honest client is done long before it is the oldest.
    """

    def __init__(self, listener: str, count_max: int = HANDSHAKES_MAX) -> None:
        self._listener = listener
        self._count_max = count_max
        self._threads: ThreadPoolExecutor | None = None
        # Oldest first.
        self._connections: dict[Connection, None] = {}
        self._lines = Rarely()

    @property
    def count(self) -> int:
        """How many handshakes are in progress."""
        return len(self._connections)

    def begun(self, connection: Connection) -> Connection | None:
        """Count a handshake; return the connection that must be closed because there are too many."""
        self._connections[connection] = None
        if len(self._connections) <= self._count_max:
            return None
        oldest = next(iter(self._connections))
        if self._lines.allows(self._listener):
            log.warning(
                "tls_handshakes_dropped",
                listener=self._listener,
                handshakes_max=self._count_max,
                peer=oldest.peer,
                hint="clients connect and do not finish TLS; the oldest are closed. Limit them with "
                "max.connections.per.ip or max.connection.creation.rate",
            )
        return oldest

    def ended(self, connection: Connection) -> None:
        """Count a handshake that ended in any way."""
        self._connections.pop(connection, None)

    def submit(self, step: Callable[[], None]) -> None:
        """Run a step on another thread. Each handshake runs one step at a time."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix=f"tls-handshake-{self._listener}")
        self._threads.submit(step)

    def close(self) -> None:
        """Start no more steps."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
