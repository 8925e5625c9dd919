"""The background thread of a coordinator, which loads partitions and expires what is old."""

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
    """Runs jobs on one thread, in the order of their due times."""

    def __init__(self, name: str) -> None:
        self._jobs: list[tuple[float, int, Job]] = []
        self._order = count()
        self._changed = threading.Condition()
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __len__(self) -> int:
        return len(self._jobs)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Wait for the current job, and run no further ones."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()

    def submit(self, job: Job, delay_seconds: float = 0.0) -> None:
        """Run a job on the thread after a delay."""
        with self._changed:
            heapq.heappush(self._jobs, (time.monotonic() + delay_seconds, next(self._order), job))
            self._changed.notify()

    def run_due(self) -> int:
        """Run all due jobs on the calling thread; return how many there were."""
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
        except Exception:  # a failed job must not stop the thread
            log.exception("coordinator_work_failed")

    def _run(self) -> None:
        while True:
            self.run_due()
            with self._changed:
                if self._is_stopped:
                    return
                pause = self._jobs[0][0] - time.monotonic() if self._jobs else None
                if pause is None or pause > 0:
                    self._changed.wait(pause)
