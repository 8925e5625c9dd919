"""What the groups of a broker have done so far."""

from __future__ import annotations

import threading


class GroupCounts:
    """Counters that only grow, whatever becomes of the groups. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.offset_commits = 0
        self.offset_expirations = 0
        self.offset_deletions = 0
        self.completed_rebalances = 0

    def committed(self, offsets: int) -> None:
        """Count offsets that were committed."""
        with self._lock:
            self.offset_commits += offsets

    def expired(self, offsets: int) -> None:
        """Count offsets whose time was over."""
        with self._lock:
            self.offset_expirations += offsets

    def deleted(self, offsets: int) -> None:
        """Count offsets that were deleted because somebody asked for it, or with their topics."""
        with self._lock:
            self.offset_deletions += offsets

    def rebalanced(self) -> None:
        """Count a rebalance of a classic group that ended with an assignment."""
        with self._lock:
            self.completed_rebalances += 1
