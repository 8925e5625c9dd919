"""Work on many logs at once: a few threads for each log directory, with progress in the log."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import structlog

from ottla.broker.storage.log_dir import LogDir

logger = structlog.get_logger(__name__)

T = TypeVar("T")

PROGRESS_SECONDS: Final = 5.0


def for_each_in_directories(
    verb: Callable[[LogDir], str],
    work: Mapping[LogDir, Iterable[T]],
    step: Callable[[LogDir, T], None],
    threads_per_dir: int,
    now_seconds: Callable[[], float] = time.monotonic,
) -> None:
    """Run a step for every item; the items of a directory that goes offline meanwhile are skipped.

    `verb` names what was done to an item, for the log, such as "recovered". An exception in a step ends its thread, and
    is raised here when the other threads are done.
    """
    jobs = [(log_dir, deque(items), threads_per_dir) for log_dir, items in work.items()]
    with ThreadPoolExecutor(max(1, threads_per_dir * len(jobs)), "log-directory") as pool:
        drains = []
        for log_dir, items, threads in jobs:
            progress = DirectoryProgress(verb(log_dir), len(items), log_dir, now_seconds)
            drains += [pool.submit(_drain, log_dir, items, step, progress) for _ in range(min(threads, len(items)))]
        for drain in drains:
            drain.result()


def _drain(log_dir: LogDir, items: deque[T], step: Callable[[LogDir, T], None], progress: DirectoryProgress) -> None:
    while log_dir.is_online:
        try:
            item = items.popleft()
        except IndexError:
            return
        step(log_dir, item)
        progress.advance()


class DirectoryProgress:
    """Counts the finished items of a directory, and logs the count every few seconds and at the end."""

    def __init__(self, verb: str, total: int, log_dir: LogDir, now_seconds: Callable[[], float]) -> None:
        self.done = 0
        self._verb = verb
        self._total = total
        self._log_dir = log_dir
        self._now_seconds = now_seconds
        self._lock = threading.Lock()
        self._said_seconds = now_seconds()

    def advance(self) -> None:
        """Count one more item."""
        with self._lock:
            self.done += 1
            done, left = self.done, self._total - self.done
            now_seconds = self._now_seconds()
            if left and now_seconds - self._said_seconds < PROGRESS_SECONDS:
                return
            self._said_seconds = now_seconds
            # Under the lock, so that the last line has the final count.
            logger.info(
                f"logs_{self._verb}",
                directory=str(self._log_dir.path),
                done=f"{done:,}",
                total=f"{self._total:,}",
                left=f"{left:,}",
            )
