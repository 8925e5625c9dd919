"""Counters of group activity, for metrics."""

from __future__ import annotations

import threading


class GroupCounts:
    """Counters that never decrease, even when groups are removed. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.offset_commits = 0
        self.offset_expirations = 0
        self.offset_deletions = 0
        self.completed_rebalances = 0

    def committed(self, offsets: int) -> None:
        """Count committed offsets."""
        with self._lock:
            self.offset_commits += offsets

    def expired(self, offsets: int) -> None:
        """Count expired offsets."""
        with self._lock:
            self.offset_expirations += offsets

    def deleted(self, offsets: int) -> None:
        """Count offsets that were deleted by request, or together with their topic."""
        with self._lock:
            self.offset_deletions += offsets

    def rebalanced(self) -> None:
        """Count a completed rebalance of a classic group."""
        with self._lock:
            self.completed_rebalances += 1
