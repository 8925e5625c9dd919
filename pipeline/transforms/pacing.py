"""How a replay is cut into steps: small enough to keep its rate and its progress, and in order in every partition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Slice(NamedTuple):
    """Some records of a partition, all of whose offsets lie from `begin` up to, not including, `end`."""

    topic: str
    partition: int
    begin: int
    end: int
    rows: int


@dataclass
class ReplayStep:
    """What is sent at once: of each partition a range of offsets."""

    slices: dict[tuple[str, int], Slice] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """How many records the step has."""
        return sum(each.rows for each in self.slices.values())

    def add(self, piece: Slice) -> None:
        """Add the next piece of a partition."""
        key = (piece.topic, piece.partition)
        before = self.slices.get(key)
        if before is not None:
            assert before.end <= piece.begin
            piece = Slice(*key, before.begin, piece.end, before.rows + piece.rows)
        self.slices[key] = piece


def steps(pieces: Iterable[Slice], rows_max: int) -> Iterator[ReplayStep]:
    """Put pieces together to steps of about so many records, taking from each partition in turn."""
    by_partition: dict[tuple[str, int], list[Slice]] = {}
    for piece in sorted(pieces):
        by_partition.setdefault((piece.topic, piece.partition), []).append(piece)
    in_turn = sorted((turn, key) for key, found in by_partition.items() for turn in range(len(found)))
    step = ReplayStep()
    for turn, key in in_turn:
        piece = by_partition[key][turn]
        if step.slices and step.rows + piece.rows > rows_max:
            yield step
            step = ReplayStep()
        step.add(piece)
    if step.slices:
        yield step


def wait_seconds(rows: int, seconds: float, rows_per_second: int | None) -> float:
    """Return how long to wait after so many records in so much time, so as not to be faster than allowed."""
    return max(0.0, rows / rows_per_second - seconds) if rows_per_second else 0.0


def advanced(progress: Mapping[str, Mapping[str, int]], step: ReplayStep) -> dict[str, dict[str, int]]:
    """Return the next offset of each partition after a step."""
    after = {topic: dict(partitions) for topic, partitions in progress.items()}
    for piece in step.slices.values():
        after.setdefault(piece.topic, {})[str(piece.partition)] = piece.end
    return after
