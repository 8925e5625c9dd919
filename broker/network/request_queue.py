"""Between the network coroutines and the IO workers: connections that have requests to be handled.

An entry is a connection with work, not a request: one worker at a time takes a connection and handles its requests
in turn, which keeps their order without any sorting. The queue is bounded by the requests and by the bytes that wait
in it, over all connections. When it is full, connections stop reading from their sockets, and the kernel tells the
clients to wait.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")

# Reading starts again when the queue has been emptied to this part of its bounds.
_RESUME_SHARE = 0.75


class RequestQueue(Generic[T]):
    """Connections with work, first in, first out. `on_room` is called once each time a full queue has room again."""

    def __init__(self, requests_max: int, bytes_max: int, on_room: Callable[[], None]) -> None:
        self._requests_max = requests_max
        # Zero or less: no bound, as in Kafka.
        self._bytes_max = bytes_max if bytes_max > 0 else float("inf")
        self._on_room = on_room
        self._ready: SimpleQueue[T | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._requests = 0
        self._bytes = 0
        self._was_full = False

    def __len__(self) -> int:
        return self._requests

    @property
    def is_full(self) -> bool:
        """Whether connections must stop reading. After True, `on_room` is called when there is room."""
        if self._requests < self._requests_max and self._bytes < self._bytes_max:
            return False
        with self._lock:
            self._was_full = self._requests >= self._requests_max or self._bytes >= self._bytes_max
            return self._was_full

    def arrived(self, requests: int, size: int) -> None:
        """Count requests that wait on their connections."""
        with self._lock:
            self._requests += requests
            self._bytes += size

    def taken(self, size: int) -> None:
        """Count out one request that a worker begins to handle, or that went with its connection."""
        with self._lock:
            self._requests -= 1
            self._bytes -= size
            if not self._was_full:
                return
            if self._requests > self._requests_max * _RESUME_SHARE or self._bytes > self._bytes_max * _RESUME_SHARE:
                return
            self._was_full = False
        self._on_room()

    def put(self, connection: T) -> None:
        """Hand a connection with work to the workers."""
        self._ready.put(connection)

    def get(self) -> T | None:
        """Wait for a connection with work; None asks the worker to stop."""
        return self._ready.get()

    def stop(self, workers: int) -> None:
        """Ask that many workers to stop when they have done what waits now."""
        for _ in range(workers):
            self._ready.put(None)
