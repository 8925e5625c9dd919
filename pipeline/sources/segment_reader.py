"""Reads the batches of a piece of a segment, in large reads, with each checksum looked at once.

Where bytes are no batch, what lies behind them decides:

  a. nothing but a torn batch or preallocated zeros, in the last segment: the log ends here, as a broker would see it
  b. nothing but zeros, in another segment whose next one goes on with the very next offset: the same
  c. anything else: the file is damaged, which is an error that names file and position; where losses are allowed,
     reading goes on with the next batch whose checksum is right

Files are read, not mapped: a broker may cut a file to its size meanwhile, and a read then is short, where a touch of a
map would end the process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

import numpy as np

from ottla.pipeline.sources.errors import CorruptLogError, DataLossError
from ottla.pipeline.sources.log_files import SegmentPiece
from ottla.protocol.errors import CorruptBatchError
from ottla.protocol.records import BATCH_HEADER_BYTES, BATCH_LENGTH_OVERHEAD, MAGIC, MAGIC_POSITION, RecordBatch

CHUNK_BYTES: Final = 4 * 1024 * 1024
_SCAN_BYTES: Final = 8 * 1024 * 1024
_BATCH_BYTES_MAX: Final = 1 << 30


class SegmentReader:
    """The batches of one piece, in lists; a list is good until the next is asked for, as the buffer is used again."""

    def __init__(self, piece: SegmentPiece, *, fail_on_data_loss: bool, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._piece = piece
        self._segment = piece.segment
        self._fail_on_data_loss = fail_on_data_loss
        self._buffer = bytearray(min(chunk_bytes, max(piece.size, BATCH_HEADER_BYTES)))
        self._file = -1
        # Where the next batch begins, and the offset that it has at least.
        self._position = piece.begin
        self._offset = piece.segment.base_offset

    def __iter__(self) -> Iterator[list[RecordBatch]]:
        """Yield batches; CorruptLogError where the file is damaged, DataLossError where it is gone."""
        try:
            self._file = os.open(self._segment.path, os.O_RDONLY)
        except FileNotFoundError:
            if self._fail_on_data_loss:
                raise DataLossError(f"{self._segment.path} was deleted after the query was planned") from None
            return
        try:
            while self._position < self._piece.end and self._offset < self._piece.end_offset:
                found = self._read()
                if found is None:
                    return
                yield found
        finally:
            os.close(self._file)

    def _read(self) -> list[RecordBatch] | None:
        """Return the batches of the next chunk, None at the end of the log."""
        wanted = min(len(self._buffer), self._piece.end - self._position)
        view = memoryview(self._buffer)[:wanted]
        filled = os.preadv(self._file, [view], self._position)
        found: list[RecordBatch] = []
        begin = 0
        reason = ""
        while begin < filled:
            try:
                batch = RecordBatch(view[:filled], begin)
                batch.check()
            except CorruptBatchError as error:
                reason = str(error)
                break
            found.append(batch)
            begin += batch.size
            self._offset = batch.next_offset
        self._position += begin
        if found:
            return found
        if self._grow(view[:filled]):
            return []
        return [] if self._passed(reason or "the file is shorter than it was") else None

    def _grow(self, view: memoryview) -> bool:
        """Make room for a batch that is larger than the buffer, if that is what it says and the file has it."""
        size = int.from_bytes(view[8:12], "big", signed=True) + BATCH_LENGTH_OVERHEAD
        is_large = len(view) >= BATCH_HEADER_BYTES and len(view) < size <= _BATCH_BYTES_MAX
        if not is_large or size > self._piece.end - self._position or len(self._buffer) >= size:
            return False
        self._buffer = bytearray(size)
        return True

    def _passed(self, reason: str) -> bool:
        """Go on behind what is no batch; False where the log ends with it, CorruptLogError where that must not be."""
        segment = self._segment
        position = self._position
        is_tail = self._piece.end == segment.size
        following = self._next_batch()
        if following is None and is_tail:
            if segment.next_base_offset is None:
                return False
            if self._offset == segment.next_base_offset and self._is_zero(position):
                return False
        if self._fail_on_data_loss:
            behind = "" if following is None else f"; the next whole batch is at position {following}"
            raise CorruptLogError(
                f"{segment.path} is damaged at position {position}: {reason}{behind}. Read another replica, or set "
                'the option failOnDataLoss to "false" to leave it out.'
            )
        self._position = self._piece.end if following is None else following
        return following is not None

    def _next_batch(self) -> int | None:
        """Return the position of the next batch in the piece whose checksum is right."""
        position = self._position + 1
        while position + BATCH_HEADER_BYTES <= self._piece.end:
            data = os.pread(self._file, min(_SCAN_BYTES, self._piece.end - position), position)
            if len(data) < BATCH_HEADER_BYTES:
                return None
            values = np.frombuffer(data, np.uint8)
            last = len(values) - BATCH_HEADER_BYTES + 1
            # Offsets, and lengths of batches, do not come near their 64 and 32 bits.
            likely = (values[MAGIC_POSITION : MAGIC_POSITION + last] == MAGIC) & (values[:last] == 0)
            likely &= values[8 : 8 + last] < _BATCH_BYTES_MAX >> 24
            for at in np.flatnonzero(likely).tolist():
                if self._is_batch(position + at, int.from_bytes(data[at : at + 12][8:], "big")):
                    return int(position + at)
            position += last
        return None

    def _is_batch(self, position: int, length: int) -> bool:
        size = length + BATCH_LENGTH_OVERHEAD
        if not BATCH_HEADER_BYTES <= size <= self._piece.end - position:
            return False
        try:
            batch = RecordBatch(os.pread(self._file, size, position))
            batch.check()
        except CorruptBatchError:
            return False
        return batch.base_offset >= self._offset

    def _is_zero(self, position: int) -> bool:
        while data := os.pread(self._file, _SCAN_BYTES, position):
            if np.frombuffer(data, np.uint8).any():
                return False
            position += len(data)
        return True
