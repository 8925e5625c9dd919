"""Why did it rebalance? The last rebalances of a group, each with its cause in words and how long its phases took."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, Final

_KEPT: Final = 20


@dataclass(slots=True)
class Rebalance:
    """One rebalance; times on the clock that the group is given, None while they are to come."""

    cause: str
    began_ms: int
    # When all had joined, or those that had not were given up.
    joined_ms: int | None = None
    # When the leader's assignment was stored, or the group had become empty.
    ended_ms: int | None = None
    generation: int | None = None
    members: int | None = None

    def as_json(self, clock_offset_ms: int) -> dict[str, Any]:
        """Show it, with its begin in milliseconds since 1970; the offset is what that clock is ahead of ours."""
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
        """Note that a rebalance begins."""
        self.rebalances.append(Rebalance(cause, now_ms))

    def joined(self, generation: int, members: int, now_ms: int) -> None:
        """Note that a generation has its members."""
        if self.rebalances:
            last = self.rebalances[-1]
            last.joined_ms, last.generation, last.members = now_ms, generation, members

    def ended(self, now_ms: int) -> None:
        """Note that the group is stable, or empty."""
        if self.rebalances and self.rebalances[-1].ended_ms is None:
            self.rebalances[-1].ended_ms = now_ms

    def noted(self, cause: str, now_ms: int) -> None:
        """Note something that changed the group without members having to join anew."""
        self.rebalances.append(Rebalance(cause, now_ms, now_ms, now_ms))

    def as_json(self, clock_offset_ms: int) -> list[dict[str, Any]]:
        """Show all."""
        return [rebalance.as_json(clock_offset_ms) for rebalance in list(self.rebalances)]
