"""Notes in ZooKeeper that say what has changed: numbered nodes below one parent.

A broker that changes something adds a note, which every broker watches for. A note names what changed and has no
values, so reading it twice does no harm. Brokers delete notes that are so old that every broker has seen them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

import structlog

from ottla.broker.cluster.operations import NoNodeError
from ottla.broker.cluster.zookeeper import Watch, ZooKeeper

log = structlog.get_logger(__name__)

_AGE_MS_MAX: Final = 15 * 60 * 1000


def add_note(zookeeper: ZooKeeper, parent: str, prefix: str, data: bytes) -> None:
    """Add a note; all brokers that watch `parent` hear of it."""
    zookeeper.create_sequential(f"{parent}/{prefix}", data)


class ChangeNotes:
    """The notes below one parent. One thread uses it."""

    def __init__(self, zookeeper: ZooKeeper, parent: str, prefix: str, clock: Callable[[], int]) -> None:
        """`clock` returns milliseconds since 1970."""
        self._zookeeper = zookeeper
        self._parent = parent
        self._name = re.compile(re.escape(prefix) + r"([0-9]{1,10})")
        self._clock = clock

    def paths(self, watch: Watch) -> dict[int, str]:
        """Return the paths of the existing notes by number, the oldest first; `watch` is called for others."""
        names = self._zookeeper.children(self._parent, watch)
        numbers = {int(match[1]): name for name in names if (match := self._name.fullmatch(name))}
        return {number: f"{self._parent}/{numbers[number]}" for number in sorted(numbers)}

    def delete_old(self, paths: Iterable[str]) -> None:
        """Delete notes that every broker has seen; `paths` start with the oldest."""
        for path in paths:
            node = self._zookeeper.read_or_none(path)
            if node is None:
                continue
            if self._clock() - node.stat.created_ms <= _AGE_MS_MAX:
                return
            try:
                self._zookeeper.delete(path)
            except NoNodeError:
                log.debug("change_note_already_deleted", path=path)
