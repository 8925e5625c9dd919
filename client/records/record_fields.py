"""Where the fields of many records lie, found with numpy for all of them at once.

The layout of records is that of `ottla.protocol.record`. A record begins where the one before it ends, so only the
lengths are followed one by one, and not even those where a run of records has the same length. What is read is then
decoded for all records in step: the first byte of a varint of each, the second of those that have one, and so on.

Fields lie behind each other, and a length below zero counts as no bytes. So a record that reaches behind its end with
any of them does not end where it says: that is the one check, besides numpy's own that a position lies in the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ottla.client.records.columns import Headers, read_headers, read_zigzag
from ottla.protocol.errors import CorruptBatchError
from ottla.protocol.record import RECORD_BYTES_MIN

Integers: TypeAlias = NDArray[np.int64]
Bytes: TypeAlias = NDArray[np.uint8]
Buffer: TypeAlias = bytes | memoryview

# A varint has at most so many bytes, the last of which is at most this.
_VARINT: Final = (5, 0x0F)
_VARLONG: Final = (10, 0x01)

# A run is looked for once in so many records at first, and less often each time that there is none.
_WALK_MIN: Final = 64
# From here to the next record by the first byte of its length; 0 where one byte does not say.
_ONE_BYTE_STRIDES: Final = [0 if byte & 1 or byte & 0x80 else 1 + (byte >> 1) for byte in range(256)]
# The value of a varint of one byte; and by its first two, the second of which is the higher, its value and its width,
# 0 where there are more.
_ONE_BYTE_VARINTS: Final = np.array([byte >> 1 ^ -(byte & 1) for byte in range(0x80)], np.int64)
_WORDS: Final = np.arange(1 << 16)
_TWO_BYTE_WIDTHS: Final = np.where(_WORDS & 0x80, np.where(_WORDS & 0x8000, 0, 2), 1).astype(np.uint8)
_TWO_BYTE_NUMBERS: Final = _WORDS & 0x7F | np.where(_WORDS & 0x80, _WORDS >> 8 << 7, 0)
_TWO_BYTE_VARINTS: Final = _TWO_BYTE_NUMBERS >> 1 ^ -(_TWO_BYTE_NUMBERS & 1)


class Part(NamedTuple):
    """Where the records of a batch lie, and how many there are."""

    begin: int
    end: int
    records: int


@dataclass(slots=True)
class RecordFields:
    """The fields of records by row; lengths of keys and values are -1 for null."""

    timestamp_deltas: Integers
    offset_deltas: Integers
    key_positions: Integers
    key_lengths: Integers
    value_positions: Integers
    value_lengths: Integers
    # Of the rows that have any.
    headers: dict[int, Headers]


def read_fields(data: Buffer, parts: Sequence[Part]) -> RecordFields:
    """Read the records of one or more batches, which lie behind each other in the data.

    CorruptBatchError is raised unless the records of each batch fill its part exactly.
    """
    view = np.frombuffer(data, np.uint8)
    found: list[Integers] = []
    try:
        for part in parts:
            found += _starts(data, view, part)
        if not found:
            none = np.empty(0, np.int64)
            return RecordFields(none, none, none, none, none, none, {})
        starts = found[0] if len(found) == 1 else np.concatenate(found)
        return _fields(data, view, starts, _ends(starts, parts))
    except IndexError:
        raise CorruptBatchError("records cut short") from None


def _ends(starts: Integers, parts: Sequence[Part]) -> Integers:
    """Return where each record ends: where the next begins, or its batch ends."""
    ends = np.empty_like(starts)
    ends[:-1] = starts[1:]
    row = 0
    for part in parts:
        row += part.records
        if part.records:
            ends[row - 1] = part.end
    return ends


def _fields(data: Buffer, view: Bytes, starts: Integers, ends: Integers) -> RecordFields:
    """Read these records; an IndexError where a position lies behind the data."""
    _, position = _varints(view, starts, _VARINT)
    timestamp_deltas, position = _varints(view, position + 1, _VARLONG)
    offset_deltas, position = _varints(view, position, _VARINT)
    key_lengths, key_positions = _varints(view, position, _VARINT)
    value_lengths, value_positions = _varints(view, key_positions + np.maximum(key_lengths, 0), _VARINT)
    position = value_positions + np.maximum(value_lengths, 0)
    if min(key_lengths.min(), value_lengths.min()) < -1:
        raise CorruptBatchError("key or value of a length below -1")
    headers = _headers(data, view, position, ends)
    return RecordFields(
        timestamp_deltas, offset_deltas, key_positions, key_lengths, value_positions, value_lengths, headers
    )


def _headers(data: Buffer, view: Bytes, positions: Integers, ends: Integers) -> dict[int, Headers]:
    """Read the headers, which come last, and see that each record ends where it says."""
    headers: dict[int, Headers] = {}
    counts = view[positions]
    behind = positions + 1
    if counts.any():
        for row in np.flatnonzero(counts).tolist():
            begin, end = int(positions[row]), int(ends[row])
            headers[row], size = read_headers(bytes(data[begin:end]), 0, end - begin)
            behind[row] = begin + size
    if (behind != ends).any():
        raise CorruptBatchError("a record is longer or shorter than it says")
    return headers


def _starts(data: Buffer, view: Bytes, part: Part) -> list[Integers]:
    """Return where each record of a batch begins, in pieces; the last must end where the batch does."""
    position, end, left = part
    if not 0 <= left <= (end - position) // RECORD_BYTES_MIN:
        raise CorruptBatchError(f"{left} records announced in {end - position} bytes")
    found: list[Integers] = []
    walk = _WALK_MIN
    while left:
        run, stride = _run(data, view, position, end, left)
        found.append(np.arange(position, position + run * stride, stride))
        position += run * stride
        left -= run
        if left and run < _WALK_MIN:
            steps = min(walk, left)
            piece, position = _walked(data, position, steps)
            found.append(np.array(piece, np.int64))
            left -= steps
            walk *= 2
    if position != end:
        raise CorruptBatchError(f"{end - position} bytes after the last record")
    return found


def _run(data: Buffer, view: Bytes, position: int, end: int, count: int) -> tuple[int, int]:
    """Return how many records from here on have the length of the first, at least 1; and from one to the next."""
    length, body = _length(data, position)
    stride = body + length - position
    count = min(count, max((end - position) // stride, 1))
    differs = np.zeros(count, np.bool_)
    for at in range(position, body):
        differs |= view[at : at + (count - 1) * stride + 1 : stride] != data[at]
    first = int(differs.argmax())
    return (first if differs[first] else count), stride


def _walked(data: Buffer, position: int, count: int) -> tuple[list[int], int]:
    """Go from record to record by their lengths."""
    starts: list[int] = []
    add, strides = starts.append, _ONE_BYTE_STRIDES
    for _ in range(count):
        add(position)
        if stride := strides[low := data[position]]:
            position += stride
        elif not low & 1 and (high := data[position + 1]) < 0x80:
            position += 2 + ((low & 0x7F | high << 7) >> 1)
        else:
            length, body = _length(data, position)
            position = body + length
    return starts, position


def _length(data: Buffer, position: int) -> tuple[int, int]:
    length, body = read_zigzag(data, position, 32)
    if length < 0:
        raise CorruptBatchError(f"record of length {length}")
    return length, body


def _varints(view: Bytes, positions: Integers, limits: tuple[int, int]) -> tuple[Integers, Integers]:
    """Read a varint at each position, and return them with the positions behind them.

    What numpy is asked for counts here, more than for how many records. Varints of one or two bytes come from tables.
    """
    first = view[positions]
    if first.max() < 0x80:
        return _ONE_BYTE_VARINTS.take(first), positions + 1
    # Behind each of the varints there is a byte at least, in a record that is well formed.
    words = view[positions + 1].astype(np.uint16)
    words <<= 8
    words |= first
    widths = _TWO_BYTE_WIDTHS.take(words)
    if widths.min():
        return _TWO_BYTE_VARINTS.take(words), positions + widths
    return _long_varints(view, positions, limits)


def _long_varints(view: Bytes, positions: Integers, limits: tuple[int, int]) -> tuple[Integers, Integers]:
    bytes_max, last_max = limits
    numbers = np.zeros(len(positions), np.uint64)
    behind = positions.copy()
    rows = np.arange(len(positions))
    for shift in range(0, 7 * bytes_max, 7):
        byte = view[behind[rows]]
        if shift == 7 * (bytes_max - 1) and byte.max() > last_max:
            raise CorruptBatchError(f"varint of more than {bytes_max} bytes")
        numbers[rows] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        behind[rows] += 1
        rows = rows[byte >= 0x80]
        if not len(rows):
            break
    return (numbers >> np.uint64(1)).view(np.int64) ^ -(numbers & np.uint64(1)).view(np.int64), behind
