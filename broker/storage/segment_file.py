"""Reading the batches of a segment file: the headers alone, or whole batches.

A batch length is believed only as far as the file reaches. An offset is believed only if it continues the batch before
it: base offset and leader epoch lie outside the CRC, so only their order protects them.

An iterator holds its file, so it can be used after the segment has given its descriptor back.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from ottla.broker.storage.open_files import OpenFile
from ottla.protocol.errors import CorruptBatchError
from ottla.protocol.records import (
    BATCH_HEADER_BYTES,
    BATCH_LENGTH,
    BATCH_LENGTH_OVERHEAD,
    BATCH_LENGTH_POSITION,
    MAGIC,
    MAGIC_POSITION,
    RecordBatch,
)

# The first fields of a batch header: base offset, batch length, leader epoch, magic, crc, attributes, last offset
# delta, base timestamp, max timestamp, producer id.
_HEADER: Final = struct.Struct(">qiibIhiqqq")
_SCAN_BYTES: Final = 4096
READ_BYTES: Final = 1024 * 1024
_SEARCH_BYTES: Final = 8 * 1024 * 1024
# Above every offset.
NO_LIMIT: Final = 1 << 63


class BatchAt(NamedTuple):
    """Where a batch lies, and what its header says."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    leader_epoch: int
    producer_id: int

    @property
    def end(self) -> int:
        """The position behind the batch."""
        return self.position + self.size


def batch_headers(
    file: OpenFile, path: Path, position: int, size: int, first_offset: int, limit: int = NO_LIMIT
) -> Iterator[BatchAt]:
    """Yield the headers of the batches from `position` to `size`, which are both batch boundaries.

    Raises CorruptBatchError if there is no batch, or if its offsets are below `first_offset`, not above the batch
    before it, or not below `limit`.
    """
    unpack_from, new_tuple = _HEADER.unpack_from, tuple.__new__
    while position < size:
        chunk = os.pread(file.fd, min(_SCAN_BYTES, size - position), position)
        last_begin = len(chunk) - _HEADER.size
        at = 0
        while at <= last_begin:
            base, length, epoch, magic, _, _, delta, _, timestamp, producer = unpack_from(chunk, at)
            total = length + BATCH_LENGTH_OVERHEAD
            begin = position + at
            if magic != MAGIC or total < BATCH_HEADER_BYTES or begin + total > size or delta < 0:
                raise CorruptBatchError(f"{path} has no batch at position {begin}")
            last = base + delta
            if base < first_offset or last >= limit:
                raise CorruptBatchError(f"{path} has offset {base} out of order at position {begin}")
            yield new_tuple(BatchAt, (begin, total, base, last, timestamp, epoch, producer))
            first_offset = last + 1
            at += total
        if at == 0:
            raise CorruptBatchError(f"{path} ends within a batch header at position {position}")
        position += at


def whole_batches(
    file: OpenFile, path: Path, position: int, size: int, buffer_bytes: int = READ_BYTES
) -> Iterator[tuple[int, RecordBatch]]:
    """Yield (position, batch) from `position` to `size`, reading `buffer_bytes` at a time, or one larger batch.

    Raises CorruptBatchError where there is no whole batch. Nothing but sizes is checked.
    """
    while position < size:
        chunk = memoryview(os.pread(file.fd, min(buffer_bytes, size - position), position))
        at = 0
        while len(chunk) - at >= BATCH_HEADER_BYTES:
            total = BATCH_LENGTH.unpack_from(chunk, at + BATCH_LENGTH_POSITION)[0] + BATCH_LENGTH_OVERHEAD
            if not BATCH_HEADER_BYTES <= total <= size - position - at:
                raise CorruptBatchError(f"{path} has no batch at position {position + at}")
            if at + total > len(chunk):
                break
            yield position + at, RecordBatch(chunk[at : at + total])
            at += total
        if at == 0:
            yield position, (batch := read_batch(file.fd, path, position, size))
            at = batch.size
        position += at


def has_batch_behind(fd: int, position: int, size: int, first_offset: int) -> bool:
    """Whether a whole batch with a later offset begins anywhere behind `position`.

    An interrupted write has nothing behind it; damage within a log has. A few megabytes are searched.
    """
    data = os.pread(fd, min(_SEARCH_BYTES, size - position), position)
    magic = bytes((MAGIC,))
    at = data.find(magic, MAGIC_POSITION + 1)
    while at >= 0:
        begin = at - MAGIC_POSITION
        if data[begin] < 0x80 and int.from_bytes(data[begin : begin + 8]) >= first_offset:
            with suppress(CorruptBatchError):
                RecordBatch(data, begin).check()
                return True
        at = data.find(magic, at + 1)
    return False


def read_batch(fd: int, path: Path, position: int, size: int) -> RecordBatch:
    """Return the one batch at `position` of a file of `size` bytes."""
    header = os.pread(fd, min(BATCH_HEADER_BYTES, size - position), position)
    if len(header) < BATCH_HEADER_BYTES:
        raise CorruptBatchError(f"{path} ends within a batch header at position {position}")
    total = BATCH_LENGTH.unpack_from(header, BATCH_LENGTH_POSITION)[0] + BATCH_LENGTH_OVERHEAD
    if not BATCH_HEADER_BYTES <= total <= size - position:
        raise CorruptBatchError(f"{path} has no batch at position {position}")
    data = os.pread(fd, total, position)
    if len(data) < total:
        raise CorruptBatchError(f"{path} ends early, within the batch at position {position}")
    return RecordBatch(data)
