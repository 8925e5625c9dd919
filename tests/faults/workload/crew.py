"""Workers in threads of their own, and what became of them."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Crew:
    """Runs each worker in a thread; an error of one is kept, and raised in its thread as well."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        self.failures: list[str] = []

    def start(self, run: Callable[[], None]) -> None:
        """Let a worker run."""

        def report() -> None:
            try:
                run()
            except BaseException as error:
                self.failures.append(repr(error))
                raise

        thread = threading.Thread(target=report)
        self._threads.append(thread)
        thread.start()

    def join(self) -> None:
        """Wait until all workers have ended."""
        for thread in self._threads:
            thread.join()
