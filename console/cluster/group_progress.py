"""Whether a group reads: one that stopped is told from one that is slow.

Nobody tells when a group committed last. So its committed offsets are compared with those of earlier looks.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Literal

from ottla.console.cluster.rates import Growth, Rates
from ottla.protocol.identifiers import TopicPartition

Progress = Literal["caught_up", "catching_up", "falling_behind", "stopped"]
# The worst first.
RANKED: Final[tuple[Progress, ...]] = ("stopped", "falling_behind", "catching_up", "caught_up")
# Clients commit every five seconds by default.
_STOPPED_S: Final = 12.0
# Reading is not slower than writing just because one was sampled a moment later.
_SLOWER: Final = 0.9


def partition_progress(
    rates: Rates, group_id: Hashable, partition: TopicPartition, committed: int, end: int, *, has_reader: bool
) -> Progress | None:
    """Return whether a group reads a partition; None at the first looks."""
    read = rates.growth(("read", group_id, *partition), committed)
    written = rates.growth(("end", *partition), end)
    if committed >= end:
        return "caught_up"
    if not has_reader and (read is None or read.amount == 0):
        # Clients that assign partitions to themselves are no members, and still commit.
        return "stopped"
    return progress_of(read, written)


def progress_of(read: Growth | None, written: Growth | None) -> Progress | None:
    """Return how a group that is behind gets on."""
    if read is None:
        return None
    if read.amount == 0:
        return "stopped" if read.elapsed_s >= _STOPPED_S else None
    if written is None:
        return None
    is_slower = read.amount / read.elapsed_s < _SLOWER * written.amount / written.elapsed_s
    return "falling_behind" if is_slower else "catching_up"


def worst(progress: list[Progress | None]) -> Progress | None:
    """Return the worst of several partitions; None if none is known."""
    known = [each for each in progress if each is not None]
    return min(known, key=RANKED.index, default=None)
