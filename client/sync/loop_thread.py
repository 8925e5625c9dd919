"""An event loop in a thread of its own, on which callers without one have coroutines run.

All who need it share one: it starts with the first of them and ends with the last.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from ottla.client.errors import IllegalStateError, KafkaTimeoutError

T = TypeVar("T")


class LoopThread:
    """A running event loop; `acquire` it, and `release` it as often."""

    # Shared by all threads, under the lock.
    _lock = threading.Lock()
    _shared: LoopThread | None = None

    def __init__(self) -> None:
        self._users = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="ottla-sync", daemon=True)
        self._thread.start()

    @classmethod
    def acquire(cls) -> LoopThread:
        """Return the loop that all share."""
        with cls._lock:
            # Of threads, a fork takes only its own to the new process.
            if cls._shared is None or not cls._shared._thread.is_alive():
                cls._shared = LoopThread()
            cls._shared._users += 1
            return cls._shared

    def release(self) -> None:
        """Give it back; without users it ends."""
        with self._lock:
            self._users -= 1
            if self._users:
                return
            if LoopThread._shared is self:
                LoopThread._shared = None
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def call(self, work: Coroutine[Any, Any, T], timeout_ms: int | None = None) -> T:
        """Wait for a coroutine; it is cancelled when the wait ends early, also by Ctrl-C."""
        future = self.submit(work)
        try:
            return future.result(None if timeout_ms is None else timeout_ms / 1000)
        except concurrent.futures.TimeoutError:
            if future.done():
                raise
            raise KafkaTimeoutError(f"the call took longer than {timeout_ms} ms") from None
        finally:
            future.cancel()

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Have a coroutine run, without waiting for it."""
        if problem := self._problem():
            work.close()
            raise IllegalStateError(problem)
        with self._lock:
            # What is submitted before the last user is gone is still seen by `_run`; nothing may come after it.
            if not self._users:
                work.close()
                raise IllegalStateError("the client was closed meanwhile")
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _problem(self) -> str | None:
        if threading.current_thread() is self._thread:
            return "a blocking call on the thread of the event loop would wait for itself"
        if not self._thread.is_alive():
            return "the event loop's thread has ended, or did not survive a fork; make clients after it"
        return None

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._loop.close()
