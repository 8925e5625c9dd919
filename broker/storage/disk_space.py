"""How much of a disk is kept free, and which appends are refused when less is free.

    free space is below        refused, beside everything above it
    the watermark              appends of producers
    half of the watermark      copies of ordinary topics by followers; they wait, and leave the ISR
    a quarter of it            records of groups and transactions, and copies of their topics

The watermark is `ottla.log.min.free.bytes` or `ottla.log.min.free.percent` of the disk, whichever is more. Followers
stop later than producers, because the disks of a cluster fill alike: where all replicas are nearly full, the leader
refuses records before a follower has to leave the ISR. Groups and transactions stop last, so that consumers can commit
and transactions can end while somebody makes room. The last quarter is for the broker itself: checkpoints, snapshots
and compaction write before they free anything. Reading, deleting, retention and compaction are never refused.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

# Free space must exceed a threshold by this part of it before appends are accepted again.
_RESUME_SHARE: Final = 10


class SpaceLevel(IntEnum):
    """How little space is left; a higher level refuses more."""

    ENOUGH = 0
    NO_PRODUCERS = 1
    NO_COPIES = 2
    NO_APPENDS = 3


# What part of the watermark must be free for a disk not to be at this level.
_DIVISORS: Final = {SpaceLevel.NO_APPENDS: 4, SpaceLevel.NO_COPIES: 2, SpaceLevel.NO_PRODUCERS: 1}


class Watermark(NamedTuple):
    """The space that is kept free on a disk. Zero in both means that nothing is refused."""

    free_bytes: int = 0
    free_percent: float = 0.0

    def bytes_of(self, total_bytes: int) -> int:
        """Return the watermark of a disk of this size."""
        return max(self.free_bytes, int(total_bytes * self.free_percent / 100))

    def level(self, free_bytes: int, total_bytes: int, before: SpaceLevel) -> SpaceLevel:
        """Return the level of a disk; one that was worse before needs a tenth more to leave that level."""
        watermark_bytes = self.bytes_of(total_bytes)
        for level, divisor in _DIVISORS.items():
            enough_bytes = watermark_bytes // divisor
            if before >= level:
                enough_bytes += enough_bytes // _RESUME_SHARE
            if free_bytes < enough_bytes:
                return level
        return SpaceLevel.ENOUGH
