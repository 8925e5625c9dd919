"""The records of a batch as columns: one list for each field, without an object for each record.

The layout of records is that of `ottla.protocol.record`. As there, the loop takes one-byte varints from a table and
decodes two-byte ones above zero in place, and calls a function only for the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ottla.protocol.compression import decompress
from ottla.protocol.errors import CompressionError, CorruptBatchError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.record import RECORD_BYTES_MIN, wrap_int64
from ottla.protocol.records import BATCH_HEADER_BYTES, MAGIC, RECORDS_BYTES_MAX, RecordBatch

if TYPE_CHECKING:
    from ottla.client.records.arrow_columns import ArrowColumns
    from ottla.client.records.record_fields import Integers

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
# Bounds and bytes of a column: a list and bytes, or views of what numpy and Arrow have.
Buffers: TypeAlias = "tuple[list[int] | Integers, bytes | memoryview]"

# Columns as they are read: the differences to the batch's first timestamp; those to its first offset by row, where they
# are not the row's number, as after compaction; keys, values and headers.
_Read: TypeAlias = tuple[list[int], dict[int, int], list[bytes | None], list[bytes | None], list[Headers]]

_NO_HEADERS: Final[Headers] = ()
_HEADER_BYTES_MIN: Final = 2
# The value of a varint by its first byte, or None where that byte says that more follow.
_ONE_BYTE: Final[list[int | None]] = [byte >> 1 ^ -(byte & 1) for byte in range(128)] + [None] * 128


@dataclass(frozen=True)
class Columns:
    """Fields of records, in the order of their offsets; all columns have the same length.

    Where numpy and pyarrow are installed, columns of many records are read by them: `arrow`, `to_arrow` and the buffers
    then take no Python object for a record, and each of the lists below is made when it is first asked for.
    """

    offsets: Sequence[int]
    timestamps: Sequence[int]
    """Milliseconds since 1970."""
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[Headers]
    topic_partition: TopicPartition | None = field(default=None, compare=False)
    """The partition that all records come from, where it is known."""

    def __len__(self) -> int:
        return len(self.values)

    @classmethod
    def joined(cls, parts: Iterable[Columns]) -> Columns:
        """Put columns one behind the other."""
        given = list(parts)
        if len(given) == 1:
            return given[0]
        return Columns(
            list(chain.from_iterable(part.offsets for part in given)),
            list(chain.from_iterable(part.timestamps for part in given)),
            list(chain.from_iterable(part.keys for part in given)),
            list(chain.from_iterable(part.values for part in given)),
            list(chain.from_iterable(part.headers for part in given)),
        )

    def sliced(self, begin: int, end: int | None = None) -> Columns:
        """Return some of the rows."""
        rows = slice(begin, end)
        return Columns(
            self.offsets[rows],
            self.timestamps[rows],
            self.keys[rows],
            self.values[rows],
            self.headers[rows],
            self.topic_partition,
        )

    def of(self, topic_partition: TopicPartition | None) -> Columns:
        """Return the same columns as those of a partition."""
        made = copy(self)
        object.__setattr__(made, "topic_partition", topic_partition)
        return made

    def value_buffers(self) -> Buffers:
        """Return where each value begins, with the end of the last, and all values in one piece; null is empty."""
        return _buffers(self.values)

    def key_buffers(self) -> Buffers:
        """Return where each key begins, with the end of the last, and all keys in one piece; null is empty."""
        return _buffers(self.keys)

    def arrow(self) -> ArrowColumns:
        """Return the same as arrays of numpy and Arrow, which must be installed."""
        from ottla.client.records.arrow_columns import arrow_of_lists

        return arrow_of_lists(self)

    def to_arrow(self) -> Any:
        """Return a pyarrow.RecordBatch: topic and partition if known, offset, timestamp, key, value and headers.

        Batches of several partitions make one table with `pyarrow.Table.from_batches`. Needs `ottla[columns]`.
        """
        return self.arrow().to_record_batch(self.topic_partition)

    def to_pandas(self) -> Any:
        """Return a pandas.DataFrame with the columns of `to_arrow`. Needs `ottla[pandas]`."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """Return a polars.DataFrame with the columns of `to_arrow`. Needs `ottla[polars]`."""
        import polars

        return polars.from_arrow(self.to_arrow())


def _buffers(column: Iterable[bytes | None]) -> Buffers:
    filled = [item or b"" for item in column]
    return list(accumulate(map(len, filled), initial=0)), b"".join(filled)


def open_records(batch: RecordBatch) -> bytes | memoryview:
    """Return the records of a batch, decompressed; CorruptBatchError where that does not work."""
    if batch.magic != MAGIC:
        raise CorruptBatchError(f"magic {batch.magic} where only {MAGIC} is read")
    view = batch.view[BATCH_HEADER_BYTES:]
    # A batch that the cleaner emptied has no blob at all, whatever its codec.
    if not batch.is_compressed or not view:
        return view
    try:
        return decompress(batch.codec, view, RECORDS_BYTES_MAX)
    except CompressionError as error:
        raise CorruptBatchError(str(error)) from error


def decode_columns(
    data: bytes, count: int, base_offset: int, base_timestamp: int, log_append_time: int | None
) -> Columns:
    """Read `count` records, which must fill `data` exactly; CorruptBatchError where they do not.

    `log_append_time`, when given, is the timestamp of every record.
    """
    if not 0 <= count <= len(data) // RECORD_BYTES_MIN:
        raise CorruptBatchError(f"{count} records announced in {len(data)} bytes")
    read: _Read = [], {}, [], [], [_NO_HEADERS] * count
    if (end := _decode(data, read)) != len(data):
        raise CorruptBatchError(f"{len(data) - end} bytes after the last record")
    timestamp_deltas, sparse, keys, values, headers = read
    offsets: Sequence[int] = range(base_offset, base_offset + count)
    if sparse:
        offsets = [base_offset + sparse.get(row, row) for row in range(count)]
    lowest, highest = (min(offsets), max(offsets)) if sparse else (base_offset, base_offset + max(count - 1, 0))
    if lowest < -(1 << 63) or highest >= 1 << 63:
        raise CorruptBatchError("an offset of more than 64 bits")
    if log_append_time is not None:
        timestamps = [log_append_time] * count
    elif not any(timestamp_deltas):
        timestamps = [base_timestamp] * count
    else:
        # Java's arithmetic wraps around, which is what lets any two timestamps have a 64-bit difference.
        timestamps = [base_timestamp + delta for delta in timestamp_deltas]
        if min(timestamps) < -(1 << 63) or max(timestamps) >= 1 << 63:
            timestamps = [wrap_int64(timestamp) for timestamp in timestamps]
    return Columns(offsets, timestamps, keys, values, headers)


def _decode(data: bytes, read: _Read) -> int:
    """Fill the columns; return the position behind the records. `headers` has a row for each record already."""
    timestamp_deltas, sparse, keys, values, headers = read
    one_byte = _ONE_BYTE
    add_timestamp, add_key, add_value = timestamp_deltas.append, keys.append, values.append
    position = 0
    try:
        for row in range(len(headers)):
            if (length := one_byte[low := data[position]]) is not None:
                end = position + 1 + length
                position += 2
            elif not low & 1 and (high := data[position + 1]) < 0x80:
                end = position + 2 + ((low & 0x7F | high << 7) >> 1)
                position += 3
            else:
                length, position = read_zigzag(data, position, 32)
                end = position + length
                position += 1
            if (delta := one_byte[low := data[position]]) is not None:
                position += 1
            elif not low & 1 and (high := data[position + 1]) < 0x80:
                delta = (low & 0x7F | high << 7) >> 1
                position += 2
            else:
                delta, position = read_zigzag(data, position, 64)
            add_timestamp(delta)
            if (delta := one_byte[low := data[position]]) is not None:
                position += 1
            elif not low & 1 and (high := data[position + 1]) < 0x80:
                delta = (low & 0x7F | high << 7) >> 1
                position += 2
            else:
                delta, position = read_zigzag(data, position, 32)
            if delta != row:
                sparse[row] = delta
            if (length := one_byte[low := data[position]]) is not None:
                position += 1
            elif not low & 1 and (high := data[position + 1]) < 0x80:
                length = (low & 0x7F | high << 7) >> 1
                position += 2
            else:
                length, position = read_zigzag(data, position, 32)
            if length >= 0:
                add_key(data[position : (position := position + length)])
            elif length == -1:
                add_key(None)
            else:
                raise CorruptBatchError(f"key of length {length}")
            if (length := one_byte[low := data[position]]) is not None:
                position += 1
            elif not low & 1 and (high := data[position + 1]) < 0x80:
                length = (low & 0x7F | high << 7) >> 1
                position += 2
            else:
                length, position = read_zigzag(data, position, 32)
            if length >= 0:
                add_value(data[position : (position := position + length)])
            elif length == -1:
                add_value(None)
            else:
                raise CorruptBatchError(f"value of length {length}")
            if data[position] == 0:
                position += 1
            else:
                headers[row], position = read_headers(data, position, end)
            if position != end:
                raise CorruptBatchError(f"a record is {position - end:+} bytes longer than it says")
    except IndexError:
        raise CorruptBatchError("records cut short") from None
    return position


def read_headers(data: bytes, position: int, end: int) -> tuple[Headers, int]:
    """Read the number of headers and the headers of a record that ends at `end`; return the position behind them.

    An IndexError means that the data end before they do.
    """
    # The caller's check of `end` sees a value that is cut short only if the record itself is not.
    if end > len(data):
        raise CorruptBatchError("records cut short")
    count, position = read_zigzag(data, position, 32)
    if not 0 <= count <= (end - position) // _HEADER_BYTES_MIN:
        raise CorruptBatchError(f"{count} headers announced in a record with {end - position} bytes left")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        length, position = read_zigzag(data, position, 32)
        if length < 0:
            raise CorruptBatchError(f"header key of length {length}")
        try:
            key = data[position : (position := position + length)].decode()
        except UnicodeDecodeError as error:
            raise CorruptBatchError(f"header key is not UTF-8: {error}") from None
        length, position = read_zigzag(data, position, 32)
        value = None
        if length >= 0:
            value = data[position : (position := position + length)]
        elif length != -1:
            raise CorruptBatchError(f"value of length {length}")
        headers.append((key, value))
    return tuple(headers), position


def read_zigzag(data: bytes | memoryview, position: int, bits: int) -> tuple[int, int]:
    """Read a varint of any width, and return it with the position behind it; an IndexError where the data end."""
    number = shift = 0
    while (byte := data[position]) >= 0x80:
        number |= (byte & 0x7F) << shift
        position += 1
        shift += 7
        if shift >= bits:
            raise CorruptBatchError(f"varint longer than {bits} bits")
    number |= byte << shift
    if number >> bits:
        raise CorruptBatchError(f"varint longer than {bits} bits")
    return number >> 1 ^ -(number & 1), position + 1
