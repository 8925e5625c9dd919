"""Record batches as numpy and Arrow columns, without a Python object for any record; needs numpy and pyarrow.

Small batches are decoded together, as what numpy is told costs as much for one record as for some hundred. Keys and
values become Arrow arrays by one copy: an array over all bytes of the records, whose even items are what is wanted and
whose odd items are what lies in between, costs nothing, and Arrow takes the even ones out of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ottla.client.records.columns import Columns, Headers, open_records
from ottla.client.records.record_fields import Buffer, Integers, Part, RecordFields, read_fields
from ottla.protocol.errors import CorruptBatchError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.records import TIMESTAMP_TYPE_BIT, RecordBatch

# Arrays of pyarrow, which has no types of its own.
Array: TypeAlias = Any

HEADERS_TYPE: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

# Batches are decoded together until they have so many records or bytes: enough to make the calls cheap, and few enough
# for the caches, which hold some numbers for each record. Arrays of several groups are copied once more to be joined.
_TOGETHER_RECORDS_MAX: Final = 10_000
_TOGETHER_BYTES_MAX: Final = 8 << 20
# Less where batches are opened ahead of their turn, because the columns wait in memory beside the batches.
_AHEAD_BYTES_MAX: Final = 1 << 20
# Arrow's binary arrays count bytes with 32 bits.
_POSITION_MAX: Final = (1 << 31) - 1


@dataclass(slots=True)
class ArrowColumns:
    """Fields of records, in the order of their offsets; all columns have the same length."""

    offsets: Integers
    timestamps_ms: Integers
    keys: Array
    """A pyarrow.BinaryArray, with null for null."""
    values: Array
    headers_by_row: dict[int, Headers]
    """Of the rows that have any, which are few as a rule."""

    def __len__(self) -> int:
        return len(self.offsets)

    def sliced(self, begin: int, end: int | None = None) -> ArrowColumns:
        """Return some of the rows, without a copy."""
        rows = range(*slice(begin, end).indices(len(self)))
        headers = self.headers_by_row
        if headers:
            headers = {row - rows.start: some for row, some in headers.items() if row in rows}
        keys, values = (array.slice(rows.start, len(rows)) for array in (self.keys, self.values))
        return ArrowColumns(self.offsets[begin:end], self.timestamps_ms[begin:end], keys, values, headers)

    def to_record_batch(self, topic_partition: TopicPartition | None = None) -> Any:
        """Return a pyarrow.RecordBatch: topic and partition if given, offset, timestamp, key, value and headers."""
        columns = {}
        if topic_partition is not None:
            topic, partition = topic_partition
            columns["topic"] = pa.repeat(pa.scalar(topic, pa.string()), len(self))
            columns["partition"] = pa.repeat(pa.scalar(partition, pa.int32()), len(self))
        columns["offset"] = _fixed(self.offsets, pa.int64())
        columns["timestamp"] = _fixed(self.timestamps_ms, pa.timestamp("ms", "UTC"))
        columns["key"] = self.keys
        columns["value"] = self.values
        columns["headers"] = self.headers
        return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))

    @property
    def headers(self) -> Array:
        """All headers as a pyarrow.ListArray of key and value, empty for a record without."""
        if not self.headers_by_row:
            bounds = _fixed(np.zeros(len(self) + 1, np.int32), pa.int32())
            return pa.ListArray.from_arrays(bounds, pa.array([], HEADERS_TYPE.value_type))
        return pa.array(
            [
                [{"key": key, "value": value} for key, value in self.headers_by_row.get(row, ())]
                for row in range(len(self))
            ],
            HEADERS_TYPE,
        )


def arrow_of_lists(columns: Columns) -> ArrowColumns:
    """Return columns that were read without numpy."""
    return ArrowColumns(
        np.array(columns.offsets, np.int64),
        np.array(columns.timestamps, np.int64),
        pa.array(columns.keys, pa.binary()),
        pa.array(columns.values, pa.binary()),
        {row: some for row, some in enumerate(columns.headers) if some},
    )


@dataclass(slots=True)
class _Opened:
    """A batch whose records were decompressed."""

    data: Buffer
    count: int
    base_offset: int
    base_timestamp: int
    log_append_time: int | None


def decode_arrow(
    data: Buffer, count: int, base_offset: int, base_timestamp: int, log_append_time: int | None
) -> ArrowColumns:
    """Read `count` records, which must fill `data` exactly; CorruptBatchError where they do not.

    `log_append_time`, when given, is the timestamp of every record.
    """
    return _decode([_Opened(data, count, base_offset, base_timestamp, log_append_time)], None)


def read_arrow(batches: Iterable[RecordBatch], begin_offset: int, end_offset: int) -> list[ArrowColumns]:
    """Read the records with offsets from `begin_offset` up to, not including, `end_offset`.

    Batches come in the order of their offsets; control batches are passed over. CorruptBatchError is raised for one
    that is not well formed; checksums are the caller's to look at.
    """
    wanted = (batch for batch in batches if batch.next_offset > begin_offset and batch.base_offset < end_offset)
    columns = (_decode(group, (begin_offset, end_offset)) for group in _groups(wanted, _TOGETHER_BYTES_MAX))
    return [each for each in columns if len(each)]


def read_each(batches: Iterable[RecordBatch]) -> list[ArrowColumns]:
    """Read the first batches, as many as are decoded together, and return the columns of each; no control batches."""
    group = next(_groups(batches, _AHEAD_BYTES_MAX), [])
    columns = _decode(group, None)
    ends = list(accumulate(each.count for each in group))
    return [columns.sliced(begin, end) for begin, end in zip([0, *ends], ends, strict=False)]


def _groups(batches: Iterable[RecordBatch], bytes_max: int) -> Iterator[list[_Opened]]:
    """Open batches, and put those together that are decoded together."""
    group: list[_Opened] = []
    size = count = 0
    for batch in batches:
        if batch.is_control:
            continue
        if size >= bytes_max or count >= _TOGETHER_RECORDS_MAX:
            yield group
            group, size, count = [], 0, 0
        group.append(_open(batch))
        size += len(group[-1].data)
        count += batch.record_count
    if group:
        yield group


def _open(batch: RecordBatch) -> _Opened:
    log_append_time = batch.max_timestamp if batch.attributes & TIMESTAMP_TYPE_BIT else None
    return _Opened(open_records(batch), batch.record_count, batch.base_offset, batch.base_timestamp, log_append_time)


def _decode(group: Sequence[_Opened], wanted: tuple[int, int] | None) -> ArrowColumns:
    """Decode batches together, and leave out the records whose offsets are not between those wanted."""
    data, begins = _in_one_piece([each.data for each in group])
    if len(data) > _POSITION_MAX:
        raise CorruptBatchError(f"{len(data)} bytes of records in one piece")
    parts = [Part(begin, begin + len(each.data), each.count) for begin, each in zip(begins, group, strict=True)]
    fields = read_fields(data, parts)
    offsets, timestamps = _numbers(group, fields)
    if wanted is not None and len(offsets) and not wanted[0] <= offsets.min() <= offsets.max() < wanted[1]:
        rows = np.flatnonzero((offsets >= wanted[0]) & (offsets < wanted[1]))
        offsets, timestamps, fields = offsets[rows], timestamps[rows], _picked(fields, rows)
    return ArrowColumns(
        offsets,
        timestamps,
        _binary(data, fields.key_positions, fields.key_lengths),
        _binary(data, fields.value_positions, fields.value_lengths),
        fields.headers,
    )


def _in_one_piece(pieces: Sequence[Buffer]) -> tuple[Buffer, list[int]]:
    """Return data that have all pieces in this order, and where each begins; without a copy if they have them already.

    So it is with batches that are not compressed, in the answer to a fetch or in a segment.
    """
    if len(pieces) == 1:
        return pieces[0], [0]
    whole = pieces[0].obj if isinstance(pieces[0], memoryview) else None
    if whole is None or not all(isinstance(piece, memoryview) and piece.obj is whole for piece in pieces):
        return b"".join(pieces), list(accumulate(map(len, pieces[:-1]), initial=0))
    begins = [_address(piece) - _address(whole) for piece in pieces]
    end = begins[-1] + len(pieces[-1])
    if sorted(begins) != begins or end - begins[0] > 2 * sum(map(len, pieces)):
        return b"".join(pieces), list(accumulate(map(len, pieces[:-1]), initial=0))
    return memoryview(whole).cast("B")[begins[0] : end], [begin - begins[0] for begin in begins]


def _address(data: Any) -> int:
    return np.frombuffer(data, np.uint8).ctypes.data


def _numbers(group: Sequence[_Opened], fields: RecordFields) -> tuple[Integers, Integers]:
    """Return offsets and timestamps."""
    counts = [each.count for each in group]
    offsets = _added([each.base_offset for each in group], counts, fields.offset_deltas)
    # A difference has 32 bits, so it leads past the end of 64 only from near there, and to the other side of zero.
    if any(abs(each.base_offset) >> 62 for each in group):
        bases = np.repeat(np.array([each.base_offset for each in group], np.int64), counts)
        if ((offsets < bases) != (fields.offset_deltas < 0)).any():
            raise CorruptBatchError("an offset of more than 64 bits")
    # Java's arithmetic wraps around, as numpy's does: any two timestamps have a 64-bit difference.
    timestamps = _added([each.base_timestamp for each in group], counts, fields.timestamp_deltas)
    row = 0
    for each in group:
        if each.log_append_time is not None:
            timestamps[row : row + each.count] = each.log_append_time
        row += each.count
    return offsets, timestamps


def _added(bases: list[int], counts: list[int], deltas: Integers) -> Integers:
    if len(bases) == 1:
        return deltas + np.int64(bases[0])
    return deltas + np.repeat(np.array(bases, np.int64), counts)


def _picked(fields: RecordFields, rows: Integers) -> RecordFields:
    headers = fields.headers
    if headers:
        headers = {new: headers[old] for new, old in enumerate(rows.tolist()) if old in headers}
    return replace(
        fields,
        key_positions=fields.key_positions[rows],
        key_lengths=fields.key_lengths[rows],
        value_positions=fields.value_positions[rows],
        value_lengths=fields.value_lengths[rows],
        headers=headers,
    )


def _binary(data: Buffer, positions: Integers, lengths: Integers) -> Array:
    """Return pieces of the data as an Arrow array; those of length -1 are null."""
    count = len(positions)
    if not count or lengths.max() < 0:
        return pa.nulls(count, pa.binary())
    validity = None
    if lengths.min() < 0:
        validity = pa.py_buffer(np.packbits(lengths >= 0, bitorder="little"))
        lengths = np.maximum(lengths, 0)
    bounds = np.empty(2 * count, np.int32)
    bounds[0::2] = positions
    bounds[1::2] = positions + lengths
    everything = pa.Array.from_buffers(
        pa.binary(), 2 * count - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)], null_count=0
    )
    even = np.arange(0, 2 * count, 2, dtype=np.int32)
    return everything.take(pa.Array.from_buffers(pa.int32(), count, [validity, pa.py_buffer(even)]))


def _fixed(array: NDArray[Any], arrow_type: Any) -> Array:
    """Return numbers as an Arrow array without a copy; pa.array would load pandas first, where it is installed."""
    return pa.Array.from_buffers(
        arrow_type, len(array), [None, pa.py_buffer(np.ascontiguousarray(array))], null_count=0
    )
