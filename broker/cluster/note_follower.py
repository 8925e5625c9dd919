"""Something that all brokers keep in memory and follow by notes: ACLs, delegation tokens.

One thread does all the reading, in order, so an older reading never replaces a newer one. While ZooKeeper is away, what
was read last stays in force.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Hashable, Mapping
from typing import Final, Generic, TypeVar

import structlog

from ottla.broker.cluster.change_notes import ChangeNotes
from ottla.broker.cluster.operations import SessionExpiredError, ZooKeeperError, ZooKeeperUnavailableError
from ottla.broker.cluster.zookeeper import ZooKeeper

log = structlog.get_logger(__name__)

_READ_BACK_SECONDS_MAX: Final = 30.0

K = TypeVar("K", bound=Hashable)
_Work = Callable[[], None]


class NoteFollower(Generic[K]):
    """Reads what notes name, on a thread of its own. Notes may lie below several parents, each with a key."""

    def __init__(
        self,
        zookeeper: ZooKeeper,
        notes: Mapping[K, ChangeNotes],
        read_all: Callable[[], None],
        read_noted: Callable[[K, Mapping[str, bytes]], None],
        *,
        name: str,
    ) -> None:
        """`read_all` reads everything; `read_noted` gets the data of new notes by path, and reads what they name."""
        self._zookeeper = zookeeper
        self._notes = notes
        self._read_everything = read_all
        self._read_noted = read_noted
        self._name = name
        # The number of the last note that was read; only the thread changes it, and `start` before the thread runs.
        self._last_notes = dict.fromkeys(notes, -1)
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Read everything, and follow changes from then on; raise a ZooKeeperError if that fails."""
        self._read_all()
        self._thread.start()

    def close(self) -> None:
        """Stop following changes."""
        self._work.put(None)
        if self._thread.is_alive():
            self._thread.join(timeout=60)

    def session_renewed(self) -> None:
        """Watch again, and read what was missed."""
        self._work.put(self._read_all)

    def read_back(self, read: _Work) -> None:
        """Have the thread read what this broker has just changed, and wait for that."""
        is_read = threading.Event()

        def work() -> None:
            try:
                read()
            finally:
                # Without ZooKeeper the thread reads later, and nobody waits for that.
                is_read.set()

        self._work.put(work)
        if not is_read.wait(_READ_BACK_SECONDS_MAX):
            log.warning("change_not_read_back", by=self._name)

    # On the thread

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                work()
            except SessionExpiredError:
                log.debug("changes_wait_for_session", of=self._name)
            except ZooKeeperUnavailableError as error:
                # The next call waits for the connection, so this does not spin.
                log.warning("changes_wait_for_zookeeper", of=self._name, reason=str(error))
                self._work.put(work)
            except ZooKeeperError as error:
                log.error("changes_not_read", of=self._name, reason=str(error))

    def _wake(self) -> None:
        self._work.put(self._take_notes)

    def _read_all(self) -> None:
        """Read everything. Notes are counted before: one that comes meanwhile is read again, and none is missed."""
        for key, notes in self._notes.items():
            self._last_notes[key] = max(notes.paths(self._wake), default=-1)
        self._read_everything()

    def _take_notes(self) -> None:
        for key, notes in self._notes.items():
            paths = notes.paths(self._wake)
            last = self._last_notes[key]
            fresh = [number for number in paths if number > last]
            nodes = self._zookeeper.read_many([paths[number] for number in fresh])
            found = {paths[number]: node.data for number, node in zip(fresh, nodes, strict=True) if node is not None}
            if len(found) < len(fresh) or fresh != list(range(last + 1, last + 1 + len(fresh))):
                # A broker with another clock has deleted a note before we saw it.
                self._read_all()
                return
            if found:
                self._read_noted(key, found)
            # Only now: if something fails above, these notes are read again.
            self._last_notes[key] = last + len(fresh)
            notes.delete_old(paths.values())
