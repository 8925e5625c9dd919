"""The IO workers, and the queue from which they take connections with requests to handle.

An entry is a connection with work, not a request. One worker at a time takes a connection and handles its requests in
turn, which keeps their order without sorting. The queue is bounded by the number and by the bytes of waiting requests,
over all connections. When it is full, connections stop reading from their sockets, and TCP makes the clients wait.

Work goes to the worker that became idle last. Its memory is warm in the processor's caches, and under light load the
others stay asleep: with eight workers in turn, a request costs half as much again.

A worker stays with a connection whose requests follow each other closely, and receives them itself. It does so only
while another worker is idle, so that nobody waits for it.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from ottla.broker.common.scratch import scratch_memory
from ottla.broker.network.frame_reader import SCRATCH_BYTES

if TYPE_CHECKING:
    from ottla.broker.network.connection import Connection, Dispatch

log = structlog.get_logger(__name__)

# Reading starts again when the queue is down to this share of its limits.
_RESUME_SHARE = 0.75


class _Waiter:
    """Where a worker waits; each worker has its own."""

    __slots__ = ("item", "scratch", "woken")

    def __init__(self) -> None:
        self.item: Connection | None = None
        # Held while there is no work for the worker.
        self.woken = threading.Lock()
        self.woken.acquire()
        # For the requests that the worker receives itself.
        self.scratch = scratch_memory(SCRATCH_BYTES)


class RequestQueue:
    """Connections with work, first in, first out. `on_room` is called once each time a full queue has room again."""

    def __init__(self, requests_max: int, bytes_max: int, on_room: Callable[[], None]) -> None:
        self._requests_max = requests_max
        # Zero or less means no limit, as in Kafka.
        self._bytes_max = bytes_max if bytes_max > 0 else float("inf")
        self._on_room = on_room
        self._lock = threading.Lock()
        self._ready: deque[Connection | None] = deque()
        # Idle workers, the latest last. There are none while a connection is ready.
        self._idle: list[_Waiter] = []
        self._requests = 0
        self._bytes = 0
        self._was_full = False

    def __len__(self) -> int:
        return self._requests

    @property
    def has_idle_worker(self) -> bool:
        """Whether the next connection with work would be taken at once."""
        return bool(self._idle)

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

    def put(self, connection: Connection | None) -> None:
        """Queue a connection with work."""
        with self._lock:
            if not self._idle:
                self._ready.append(connection)
                return
            waiter = self._idle.pop()
        waiter.item = connection
        waiter.woken.release()

    def get(self, waiter: _Waiter) -> Connection | None:
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


class Workers:
    """`num.io.threads` threads; the number may change while they run."""

    def __init__(self, queue: RequestQueue, dispatch: Dispatch, count: int) -> None:
        self._queue = queue
        self._dispatch = dispatch
        self._count = count
        self._numbers = itertools.count()
        self._threads: list[threading.Thread] = []

    @property
    def count(self) -> int:
        """The wanted number of threads."""
        return self._count

    def start(self) -> None:
        """Start to handle requests."""
        count, self._count = self._count, 0
        self.resize(count)

    def resize(self, count: int) -> None:
        """Change the number of threads; surplus ones stop when they have nothing to do."""
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        self._queue.stop(max(self._count - count, 0))
        for _ in range(count - self._count):
            thread = threading.Thread(target=self._run, name=f"io-worker-{next(self._numbers)}", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._count = count

    def stop(self, timeout_seconds: float) -> None:
        """Stop when the queued requests are handled, or after a timeout."""
        self._queue.stop(self._count)
        deadline = time.monotonic() + timeout_seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        waiter = _Waiter()
        while (connection := self._queue.get(waiter)) is not None:
            try:
                connection.work(self._dispatch, waiter.scratch)
            except Exception:  # a worker outlives every request; the connection does not
                log.exception("request_failed", peer=connection.peer)
                connection.fail("an internal error")
