"""The bound on what segments keep open: ten thousand partitions must not need thirty thousand descriptors.

A segment that opens its file registers here. When there are more than the bound, those that were not used since
the last look are asked to release what they hold: descriptor, write map and loaded indexes. A segment whose log is
busy refuses, and another one is asked, so the bound may be passed by as many as there are busy logs. A segment that
is being written has a second descriptor, that of its map.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Protocol


class Releasable(Protocol):
    """Something that keeps files open, and can open them again when it needs them."""

    used: bool

    def release(self) -> bool:
        """Close them, without waiting for a lock; False when that is not possible now."""
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
        """Note that `entry` has files open, and have others release theirs where there are too many."""
        with self._lock:
            self._entries[id(entry)] = entry
            looks = 2 * len(self._entries)
        for _ in range(looks):
            with self._lock:
                if len(self._entries) <= self.open_max:
                    return
                # Others may be looking too, and may have taken what is left.
                key, candidate = self._entries.popitem(last=False)
            if candidate is entry or candidate.used or not candidate.release():
                candidate.used = False
                with self._lock:
                    self._entries[key] = candidate

    def closed(self, entry: Releasable) -> None:
        """Note that `entry` has closed its files by itself."""
        with self._lock:
            self._entries.pop(id(entry), None)
