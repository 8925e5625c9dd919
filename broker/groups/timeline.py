"""The last rebalances of a group: why each one happened, and how long its phases took."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from msgspec import Struct

_KEPT: Final = 20


class Rebalance(Struct):
    """One rebalance. Times are on the clock of the group's timers; None if they have not come yet."""

    cause: str
    began_ms: int
    # When all members had joined, or the missing ones were dropped.
    joined_ms: int | None = None
    # When the assignment was complete, or the group was empty.
    ended_ms: int | None = None
    generation: int | None = None
    members: int | None = None

    def as_json(self, clock_offset_ms: int) -> dict[str, Any]:
        """Return the rebalance as JSON. `clock_offset_ms` converts the start time to milliseconds since 1970."""
        joined, ended = self.joined_ms, self.ended_ms
        return {
            "cause": self.cause,
            "began_ms": self.began_ms + clock_offset_ms,
            "join_ms": None if joined is None else joined - self.began_ms,
            "sync_ms": None if joined is None or ended is None else ended - joined,
            "generation": self.generation,
            "members": self.members,
        }


class Timeline:
    """The rebalances of one group, oldest first."""

    def __init__(self) -> None:
        self.rebalances: deque[Rebalance] = deque(maxlen=_KEPT)

    def __len__(self) -> int:
        return len(self.rebalances)

    def began(self, cause: str, now_ms: int) -> None:
        """Add a rebalance that begins now."""
        self.rebalances.append(Rebalance(cause, now_ms))

    def joined(self, generation: int, members: int, now_ms: int) -> None:
        """Note that the members of the new generation are known."""
        if self.rebalances:
            last = self.rebalances[-1]
            last.joined_ms, last.generation, last.members = now_ms, generation, members

    def ended(self, now_ms: int) -> None:
        """Note that the group is stable or empty."""
        if self.rebalances and self.rebalances[-1].ended_ms is None:
            self.rebalances[-1].ended_ms = now_ms

    def noted(self, cause: str, now_ms: int) -> None:
        """Add a change that did not make members join again."""
        self.rebalances.append(Rebalance(cause, now_ms, now_ms, now_ms))

    def as_json(self, clock_offset_ms: int) -> list[dict[str, Any]]:
        """Return all rebalances as JSON."""
        return [rebalance.as_json(clock_offset_ms) for rebalance in list(self.rebalances)]
