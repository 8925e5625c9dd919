"""The queue between network coroutines and IO workers: connections with requests to handle.

An entry is a connection with work, not a request. One worker at a time takes a connection and handles its requests in
turn, which keeps their order without sorting. The queue is bounded by the number and by the bytes of waiting requests,
over all connections. When it is full, connections stop reading from their sockets, and TCP makes the clients wait.

Work goes to the worker that became idle last. Its memory is warm in the processor's caches, and under light load the
others stay asleep: with eight workers in turn, a request costs half as much again.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

# Reading starts again when the queue is down to this share of its limits.
_RESUME_SHARE = 0.75


class Waiter(Generic[T]):
    """Where a worker waits; each worker has its own."""

    __slots__ = ("item", "woken")

    def __init__(self) -> None:
        self.item: T | None = None
        # Held while there is no work for the worker.
        self.woken = threading.Lock()
        self.woken.acquire()


class RequestQueue(Generic[T]):
    """Connections with work, first in, first out. `on_room` is called once each time a full queue has room again."""

    def __init__(self, requests_max: int, bytes_max: int, on_room: Callable[[], None]) -> None:
        self._requests_max = requests_max
        # Zero or less means no limit, as in Kafka.
        self._bytes_max = bytes_max if bytes_max > 0 else float("inf")
        self._on_room = on_room
        self._lock = threading.Lock()
        self._ready: deque[T | None] = deque()
        # Idle workers, the latest last. There are none while a connection is ready.
        self._idle: list[Waiter[T]] = []
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
        """Count requests that are queued on their connections."""
        with self._lock:
            self._requests += requests
            self._bytes += size

    def taken(self, size: int) -> None:
        """Count one request less: a worker starts to handle it, or its connection was closed."""
        with self._lock:
            self._requests -= 1
            self._bytes -= size
            if not self._was_full:
                return
            if self._requests > self._requests_max * _RESUME_SHARE or self._bytes > self._bytes_max * _RESUME_SHARE:
                return
            self._was_full = False
        self._on_room()

    def put(self, connection: T | None) -> None:
        """Queue a connection with work."""
        with self._lock:
            if not self._idle:
                self._ready.append(connection)
                return
            waiter = self._idle.pop()
        waiter.item = connection
        waiter.woken.release()

    def get(self, waiter: Waiter[T]) -> T | None:
        """Wait for a connection with work; None asks the worker to stop."""
        with self._lock:
            if self._ready:
                return self._ready.popleft()
            self._idle.append(waiter)
        waiter.woken.acquire()
        item, waiter.item = waiter.item, None
        return item

    def stop(self, workers: int) -> None:
        """Ask that many workers to stop after the work that is queued now."""
        for _ in range(workers):
            self.put(None)
