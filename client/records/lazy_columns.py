"""Columns that numpy and Arrow read, with lists of Python objects only for those who ask for them.

This is the one module of the client that the others ask for numpy and pyarrow through; it cannot be imported without.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ottla.client.records import arrow_columns
from ottla.client.records.arrow_columns import Array, ArrowColumns, read_arrow
from ottla.client.records.columns import Buffers, Columns, Headers
from ottla.client.records.record_fields import Integers
from ottla.protocol.records import RecordBatch

_OFFSET_MAX: Final = (1 << 63) - 1
# Arrow's binary arrays count bytes with 32 bits.
_BINARY_BYTES_MAX: Final = (1 << 31) - 1


class LazyColumns(Columns):
    """Columns of records as arrays; lists are made when they are first asked for."""

    def __init__(self, arrow: ArrowColumns) -> None:
        self._arrow = arrow

    def __len__(self) -> int:
        return len(self._arrow)

    @cached_property
    def offsets(self) -> Sequence[int]:
        return _integers(self._arrow.offsets)

    @cached_property
    def timestamps(self) -> Sequence[int]:
        """Milliseconds since 1970."""
        return _integers(self._arrow.timestamps_ms)

    @cached_property
    def keys(self) -> Sequence[bytes | None]:
        return _list(self._arrow.keys)

    @cached_property
    def values(self) -> Sequence[bytes | None]:
        return _list(self._arrow.values)

    @cached_property
    def headers(self) -> Sequence[Headers]:
        headers: list[Headers] = [()] * len(self)
        for row, some in self._arrow.headers_by_row.items():
            headers[row] = some
        return headers

    def sliced(self, begin: int, end: int | None = None) -> Columns:
        """Return some of the rows."""
        return LazyColumns(self._arrow.sliced(begin, end)).of(self.topic_partition)

    def value_buffers(self) -> Buffers:
        """Return where each value begins, with the end of the last, and all values in one piece; null is empty."""
        return _buffers(self._arrow.values)

    def key_buffers(self) -> Buffers:
        """Return where each key begins, with the end of the last, and all keys in one piece; null is empty."""
        return _buffers(self._arrow.keys)

    def arrow(self) -> ArrowColumns:
        """Return the arrays of numpy and Arrow."""
        return self._arrow


def read_columns(batches: Iterable[RecordBatch], begin_offset: int) -> Columns:
    """Read the records from an offset on; CorruptBatchError where a batch is not well formed."""
    pieces = read_arrow(batches, begin_offset, _OFFSET_MAX)
    if len(pieces) == 1:
        return LazyColumns(pieces[0])
    arrays = [array for piece in pieces for array in (piece.keys, piece.values)]
    if not pieces or sum(array.nbytes for array in arrays) > _BINARY_BYTES_MAX:
        return Columns.joined(map(LazyColumns, pieces))
    return LazyColumns(_joined(pieces))


def read_each(batches: Iterable[RecordBatch]) -> list[Columns]:
    """Read the first batches, as many as are decoded together, and return the columns of each."""
    return [LazyColumns(columns) for columns in arrow_columns.read_each(batches)]


def _joined(pieces: Sequence[ArrowColumns]) -> ArrowColumns:
    headers: dict[int, Headers] = {}
    begin = 0
    for piece in pieces:
        headers.update((begin + row, some) for row, some in piece.headers_by_row.items())
        begin += len(piece)
    return ArrowColumns(
        np.concatenate([piece.offsets for piece in pieces]),
        np.concatenate([piece.timestamps_ms for piece in pieces]),
        pa.concat_arrays([piece.keys for piece in pieces]),
        pa.concat_arrays([piece.values for piece in pieces]),
        headers,
    )


def _integers(array: Integers) -> list[int]:
    made: list[int] = array.tolist()
    return made


def _list(array: Array) -> list[Any]:
    if array.null_count == len(array):
        return [None] * len(array)
    made: list[Any] = array.to_pylist()
    return made


def _buffers(array: Array) -> Buffers:
    _, bounds, data = array.buffers()
    if not len(array) or data is None:
        return np.zeros(len(array) + 1, np.int64), b""
    positions = np.frombuffer(bounds, np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    return positions - positions[0], memoryview(data)[positions[0] : positions[-1]]
