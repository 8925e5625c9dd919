"""The connections of the HTTP port, by what they wait for. A slow client never takes the place of another one.

A thread serves each connection, so their number has a limit. A stranger can open connections and send nothing, or read
nothing; a client that was answered may stay for its next request. Whoever comes when all places are taken replaces the
client that has been slow for the longest time.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress


class SlowClients:
    """Connections that wait for their clients, the oldest first: only so many, and only for so long. Thread-safe."""

    def __init__(self, count_max: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._count_max = count_max
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._since: dict[socket.socket, float] = {}
        self._is_closed = False

    def enter(self, connection: socket.socket) -> None:
        """Add a connection; cut the oldest one if there are too many."""
        with self._lock:
            self._since[connection] = self._clock()
            if len(self._since) <= self._count_max and not self._is_closed:
                return
            oldest = next(iter(self._since))
            del self._since[oldest]
        _cut(oldest)

    def close(self) -> None:
        """Cut all connections, and those that come later."""
        with self._lock:
            self._is_closed = True
            left = list(self._since)
            self._since.clear()
        for connection in left:
            _cut(connection)

    def leave(self, connection: socket.socket) -> None:
        """Remove a connection, if it is there."""
        with self._lock:
            self._since.pop(connection, None)

    def cut_overdue(self) -> None:
        """Cut the connections whose time is over."""
        now = self._clock()
        with self._lock:
            overdue = [connection for connection, since in self._since.items() if now - since > self._seconds]
            for connection in overdue:
                del self._since[connection]
        for connection in overdue:
            _cut(connection)


def _cut(connection: socket.socket) -> None:
    """Wake the thread that waits for a client; the thread closes the connection."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
