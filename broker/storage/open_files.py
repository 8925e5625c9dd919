"""The bound on what segments keep open: ten thousand partitions must not need thirty thousand descriptors.

A segment that opens its file registers here, with the lock of its log held. When there are more than the bound, others
are asked to release what they hold: descriptor, write map and loaded indexes. Those that were used since the last look
are passed over, as long as there are better ones among the few that are looked at. Segments of the same log are closed
under the lock that the caller has; one whose log is busy otherwise refuses, so the bound may be passed by as many as
there are in use. A segment that is being written has a second descriptor, that of its map.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final, Protocol

# How many are asked for each file that is opened: the lock of a log is held meanwhile.
_LOOKS_MAX: Final = 8


class Releasable(Protocol):
    """Something that keeps files open, and can open them again when it needs them."""

    used: bool
    # Who has it may open and close these files.
    lock: threading.Lock

    def release(self, held: threading.Lock) -> bool:
        """Close them, without waiting for a lock other than `held`; False when that is not possible now."""
        ...


class OpenFiles:
    """Those that have files open, in the order of their second chances. Thread-safe; its lock is the innermost."""

    def __init__(self, open_max: int) -> None:
        self.open_max = open_max
        self._entries: OrderedDict[int, Releasable] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def opened(self, entry: Releasable) -> None:
        """Note that `entry` has files open, and have others release theirs where there are too many.

        The caller holds the lock of `entry`.
        """
        with self._lock:
            self._entries[id(entry)] = entry
        spared: list[Releasable] = []
        for _ in range(_LOOKS_MAX):
            candidate = self._take_surplus()
            if candidate is None:
                return
            if candidate is not entry and candidate.used:
                candidate.used = False
                spared.append(candidate)
            elif candidate is not entry and candidate.release(entry.lock):
                continue
            self._put_back(candidate)
        for candidate in spared:
            if self._take_surplus(candidate) is not None and not candidate.release(entry.lock):
                self._put_back(candidate)

    def closed(self, entry: Releasable) -> None:
        """Note that `entry` has closed its files by itself."""
        with self._lock:
            self._entries.pop(id(entry), None)

    def _take_surplus(self, wanted: Releasable | None = None) -> Releasable | None:
        """Take an entry out, the first or the one wanted; None where there are not too many, or it has gone."""
        with self._lock:
            if len(self._entries) <= self.open_max:
                return None
            # Others may be looking too, and may have taken it.
            return self._entries.pop(id(wanted), None) if wanted is not None else self._entries.popitem(last=False)[1]

    def _put_back(self, entry: Releasable) -> None:
        with self._lock:
            self._entries[id(entry)] = entry
