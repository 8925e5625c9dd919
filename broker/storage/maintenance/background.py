"""Steps that a thread repeats in the background, each at its own interval."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import structlog
from msgspec import Struct

from ottla.broker.common.clocks import monotonic_ms

logger = structlog.get_logger(__name__)


class Task(Struct):
    """A step, how often it runs, and when it is due next."""

    name: str
    interval_ms: int
    step: Callable[[], object]
    due_ms: int
    # Whether it also runs when the thread is woken.
    on_wake: bool = False


class Loop:
    """A thread that runs tasks when they are due, one at a time. Tests call `run_due` themselves."""

    def __init__(
        self,
        name: str,
        tasks: Sequence[Task],
        clock_ms: Callable[[], int] = monotonic_ms,
        wake: threading.Event | None = None,
    ) -> None:
        """Take the tasks; setting `wake` makes the thread run the tasks with `on_wake` at once."""
        self.tasks = tasks
        self.failures = 0
        self._clock_ms = clock_ms
        self._made_ms = clock_ms()
        self.wake = wake or threading.Event()
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread. The time until each task is first due counts from here."""
        waited_ms = self._clock_ms() - self._made_ms
        for task in self.tasks:
            task.due_ms += waited_ms
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread after its current step."""
        self._is_stopped = True
        self.wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def run_due(self) -> int:
        """Run the tasks that are due; return the milliseconds until the next one is."""
        for task in self.tasks:
            if task.due_ms <= self._clock_ms() and not self._is_stopped:
                try:
                    task.step()
                except Exception:
                    self.failures += 1
                    logger.exception("background_step_failed", step=task.name)
                # Counted from the end of the step: a step that takes longer than its interval must not starve the
                # others.
                task.due_ms = self._clock_ms() + task.interval_ms
        return max(min(task.due_ms for task in self.tasks) - self._clock_ms(), 0)

    def hurry(self) -> None:
        """Make the tasks with `on_wake` due."""
        for task in self.tasks:
            if task.on_wake:
                task.due_ms = self._clock_ms()

    def _run(self) -> None:
        while not self._is_stopped:
            wait_ms = self.run_due()
            if self.wake.wait(min(wait_ms / 1000, threading.TIMEOUT_MAX)):
                # Cleared before the tasks run, so that a later event is not missed.
                self.wake.clear()
                self.hurry()
