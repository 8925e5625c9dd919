"""Where batches begin in a segment: from its index, or from the file itself where there is none.

The index of the segment that a broker writes to may be empty, and that of a backup may be missing. What an index says
is a hint only: a position counts when a batch with a right checksum begins there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ottla.protocol.errors import CorruptBatchError
from ottla.protocol.records import (
    BATCH_HEADER,
    BATCH_HEADER_BYTES,
    BATCH_LENGTH_MIN,
    BATCH_LENGTH_OVERHEAD,
    RecordBatch,
)

_ENTRY: Final = np.dtype([("offset", ">i4"), ("position", ">i4")])
# So many headers are looked at in a file without an index; of one with more, the rest is one piece.
_WALK_MAX: Final = 50_000
_BATCH_BYTES_MAX: Final = 100 * 1024 * 1024


@dataclass(slots=True)
class SegmentIndex:
    """Some of the batches of a segment: their positions, and an offset that each contains or precedes."""

    path: str
    size: int
    offsets: NDArray[np.int64]
    positions: NDArray[np.int64]

    @classmethod
    def read(cls, path: str, base_offset: int, size: int) -> SegmentIndex:
        """Read the index beside a segment; an empty one where it is missing."""
        try:
            data = np.fromfile(path.removesuffix(".log") + ".index", _ENTRY)
        except OSError:
            data = np.empty(0, _ENTRY)
        # Preallocated and not yet used, or behind the end of a file that was cut.
        data = data[(data["position"] > 0) & (data["position"] < size) & (data["offset"] > 0)]
        return cls(path, size, base_offset + data["offset"].astype(np.int64), data["position"].astype(np.int64))

    def position_before(self, offset: int) -> int:
        """Return the position of a batch that begins at or before the one with an offset."""
        entry = int(np.searchsorted(self.offsets, offset, "right")) - 1
        # The entry may name the last offset of its batch; the one before it is at the front for sure.
        position = int(self.positions[entry - 1]) if entry > 0 else 0
        return position if position and self._is_batch(position) else 0

    def cuts(self, begin: int, bytes_max: int) -> list[int]:
        """Return positions of batches behind `begin`, about `bytes_max` from each other."""
        if self.size - begin <= bytes_max:
            return []
        positions: Iterator[int] = iter(self.positions.tolist()) if len(self.positions) else self._walked(begin)
        cuts: list[int] = []
        last = begin
        for position in positions:
            if position - last >= bytes_max and self._is_batch(position):
                cuts.append(position)
                last = position
        return cuts

    def _walked(self, begin: int) -> Iterator[int]:
        """Go from batch to batch."""
        position = begin
        with open(self.path, "rb", buffering=0) as file:
            for _ in range(_WALK_MAX):
                header = os.pread(file.fileno(), BATCH_HEADER_BYTES, position)
                if len(header) < BATCH_HEADER_BYTES:
                    return
                length = BATCH_HEADER.unpack(header)[1]
                if length < BATCH_LENGTH_MIN:
                    return
                yield position
                position += length + BATCH_LENGTH_OVERHEAD

    def _is_batch(self, position: int) -> bool:
        with open(self.path, "rb", buffering=0) as file:
            header = os.pread(file.fileno(), BATCH_HEADER_BYTES, position)
            if len(header) < BATCH_HEADER_BYTES:
                return False
            size = BATCH_HEADER.unpack(header)[1] + BATCH_LENGTH_OVERHEAD
            if not BATCH_HEADER_BYTES <= size <= _BATCH_BYTES_MAX:
                return False
            try:
                RecordBatch(os.pread(file.fileno(), size, position)).check()
            except CorruptBatchError:
                return False
        return True
