"""Fetch ZooKeeper for a cluster that is being started, in the background, so that Ctrl-C ends the wait at once."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ottla.client.local_cluster.errors import InterruptedStartError
from ottla.client.local_cluster.zookeeper_install import default_source, install, source_name
from ottla.client.local_cluster.zookeeper_jars import JARS, ZOOKEEPER_VERSION, install_folder


class ZooKeeperFetch:
    """An installation of ZooKeeper from the default source, on a thread of its own."""

    label = f"ZooKeeper {ZOOKEEPER_VERSION}"
    size_bytes = sum(jar.size_bytes for jar in JARS)

    def __init__(self) -> None:
        self._source = default_source()
        self._folder = install_folder()
        self.announcement = (
            f"This machine has no ZooKeeper: fetching {self.label} once, {self.size_bytes / 1_000_000:.0f} MB, "
            f"from {source_name(self._source)} to {self._folder}"
        )
        self._done_bytes = 0
        self._error: BaseException | None = None
        self._is_cancelled = False
        # A thread that waits for a silent repository must not hold up the end of the program.
        self._thread = threading.Thread(target=self._install, name="zookeeper-fetch", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def cancel(self) -> None:
        """End with the next bytes. What has arrived completely stays for the next time."""
        self._is_cancelled = True

    def is_over(self, tell: Callable[[int], None]) -> bool:
        """Call `tell` with the progress, and return whether ZooKeeper is installed; raise why it cannot be."""
        tell(self._done_bytes)
        if self._thread.is_alive():
            return False
        if self._error is not None:
            raise self._error
        return True

    def _install(self) -> None:
        try:
            install(self._source, self._folder, self._note)
        except BaseException as error:
            self._error = error

    def _note(self, done_bytes: int) -> None:
        self._done_bytes = done_bytes
        if self._is_cancelled:
            raise InterruptedStartError("Cancelled.")
