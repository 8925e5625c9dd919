"""The IO workers: threads that take connections with work from the request queue and handle their requests."""

from __future__ import annotations

import itertools
import threading
import time

import structlog

from ottla.broker.network.connection import Connection, Dispatch
from ottla.broker.network.request_queue import RequestQueue, Waiter

log = structlog.get_logger(__name__)


class Workers:
    """`num.io.threads` threads; the number may change while they run."""

    def __init__(self, queue: RequestQueue[Connection], dispatch: Dispatch, count: int) -> None:
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
        waiter: Waiter[Connection] = Waiter()
        while (connection := self._queue.get(waiter)) is not None:
            try:
                connection.work(self._dispatch)
            except Exception:  # a worker outlives every request; the connection does not
                log.exception("request_failed", peer=connection.peer)
                connection.fail("an internal error")
