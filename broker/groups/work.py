"""One thread for what the coordinator does by itself: reading partitions, forgetting old offsets."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable
from itertools import count

import structlog

log = structlog.get_logger(__name__)

Job = Callable[[], None]


class Work:
    """Jobs in the order in which they are due."""

    def __init__(self, name: str) -> None:
        self._jobs: list[tuple[float, int, Job]] = []
        self._order = count()
        self._changed = threading.Condition()
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def stop(self) -> None:
        """Finish the job that is being done, and no other."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()

    def submit(self, job: Job, delay_seconds: float = 0.0) -> None:
        """Have a job done, now or later."""
        with self._changed:
            heapq.heappush(self._jobs, (time.monotonic() + delay_seconds, next(self._order), job))
            self._changed.notify()

    def run_due(self) -> int:
        """Do what is due, on this thread; return how many jobs that were."""
        done = 0
        while (job := self._next()) is not None:
            self._do(job)
            done += 1
        return done

    def _next(self) -> Job | None:
        with self._changed:
            if self._is_stopped or not self._jobs or self._jobs[0][0] > time.monotonic():
                return None
            return heapq.heappop(self._jobs)[2]

    def _do(self, job: Job) -> None:
        try:
            job()
        except Exception:  # one job must not stop those that come after it
            log.exception("group_work_failed")

    def _run(self) -> None:
        while True:
            self.run_due()
            with self._changed:
                if self._is_stopped:
                    return
                pause = self._jobs[0][0] - time.monotonic() if self._jobs else None
                if pause is None or pause > 0:
                    self._changed.wait(pause)
