"""The records of a batch: `Record` objects from the uncompressed bytes after its 61-byte header.

    record:  varint length of what follows, int8 attributes (unused), varlong timestamp delta, varint offset delta,
             varint key length (-1 null), key, varint value length (-1 null), value, varint header count, headers
    header:  varint key length, UTF-8 key, varint value length (-1 null), value

A varint is zigzag, seven bits per byte, low group first. The loop over records takes one-byte varints from a table,
decodes positive two-byte ones in place, and calls a function only for the rest: a call per field would double the cost
of a record.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

from ottla.protocol.errors import CorruptBatchError

Headers: TypeAlias = list[tuple[str, bytes | None]]

RECORD_BYTES_MIN: Final = 7
_HEADER_BYTES_MIN: Final = 2

# The value of a varint by its first byte; None if that byte says that more follow.
_ONE_BYTE: Final[list[int | None]] = [byte >> 1 ^ -(byte & 1) for byte in range(128)] + [None] * 128


class Record(NamedTuple):
    """One record, with its absolute offset and its timestamp in milliseconds."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def decode_records(
    data: bytes, count: int, base_offset: int, base_timestamp: int, log_append_time: int | None
) -> Iterator[Record]:
    """Read `count` records, which must fill `data` exactly; otherwise the iterator raises CorruptBatchError.

    `log_append_time`, if given, is the timestamp of every record.
    """
    if not 0 <= count <= len(data) // RECORD_BYTES_MIN:
        raise CorruptBatchError(f"{count} records announced in {len(data)} bytes")
    records = _decode_records(data, count, base_offset, base_timestamp, log_append_time)
    if -(1 << 62) < base_timestamp < 1 << 62:
        return records
    return (record._replace(timestamp=wrap_int64(record.timestamp)) for record in records)


def _decode_records(
    data: bytes, count: int, base_offset: int, base_timestamp: int, log_append_time: int | None
) -> Iterator[Record]:
    one_byte = _ONE_BYTE
    # NamedTuple's own constructor is Python code and takes more than twice as long.
    new_tuple = tuple.__new__
    position = 0
    try:
        for _ in range(count):
            if (length := one_byte[low := data[position]]) is not None:
                position += 1
            elif not low & 1 and (high := data[position + 1]) < 0x80:
                length = (low & 0x7F | high << 7) >> 1
                position += 2
            else:
                length, position = _read_varint(data, position)
            end = position + length
            position += 1
            if (timestamp_delta := one_byte[low := data[position]]) is not None:
                position += 1
            elif not low & 1 and (high := data[position + 1]) < 0x80:
                timestamp_delta = (low & 0x7F | high << 7) >> 1
                position += 2
            else:
                timestamp_delta, position = _read_timestamp_delta(data, position, base_timestamp)
            if (offset_delta := one_byte[low := data[position]]) is not None:
                position += 1
            elif not low & 1 and (high := data[position + 1]) < 0x80:
                offset_delta = (low & 0x7F | high << 7) >> 1
                position += 2
            else:
                offset_delta, position = _read_varint(data, position)
            if (length := one_byte[low := data[position]]) is not None:
                position += 1
            elif not low & 1 and (high := data[position + 1]) < 0x80:
                length = (low & 0x7F | high << 7) >> 1
                position += 2
            else:
                length, position = _read_varint(data, position)
            key = None
            if length >= 0:
                key = data[position : (position := position + length)]
            elif length != -1:
                raise CorruptBatchError(f"key of length {length}")
            if (length := one_byte[low := data[position]]) is not None:
                position += 1
            elif not low & 1 and (high := data[position + 1]) < 0x80:
                length = (low & 0x7F | high << 7) >> 1
                position += 2
            else:
                length, position = _read_varint(data, position)
            value = None
            if length >= 0:
                value = data[position : (position := position + length)]
            elif length != -1:
                raise CorruptBatchError(f"value of length {length}")
            if data[position] == 0:
                headers: Headers = []
                position += 1
            else:
                headers, position = _read_headers(data, position, end)
            if position != end:
                raise CorruptBatchError(f"a record is {position - end:+} bytes longer than it says")
            timestamp = base_timestamp + timestamp_delta if log_append_time is None else log_append_time
            yield new_tuple(Record, (base_offset + offset_delta, timestamp, key, value, headers))
    except IndexError:
        raise CorruptBatchError("records cut short") from None
    if position != len(data):
        raise CorruptBatchError(f"{len(data) - position} bytes after the last record")


def _read_headers(data: bytes, position: int, end: int) -> tuple[Headers, int]:
    # The caller's check of `end` finds a truncated value only if the record itself is complete.
    if end > len(data):
        raise CorruptBatchError("records cut short")
    count, position = _read_varint(data, position)
    if not 0 <= count <= (end - position) // _HEADER_BYTES_MIN:
        raise CorruptBatchError(f"{count} headers announced in a record with {end - position} bytes left")
    one_byte = _ONE_BYTE
    headers: Headers = []
    try:
        for _ in range(count):
            if (length := one_byte[data[position]]) is not None:
                position += 1
            else:
                length, position = _read_varint(data, position)
            if length < 0:
                raise CorruptBatchError(f"header key of length {length}")
            key = data[position : (position := position + length)].decode()
            if (length := one_byte[data[position]]) is not None:
                position += 1
            else:
                length, position = _read_varint(data, position)
            value = None
            if length >= 0:
                value = data[position : (position := position + length)]
            elif length != -1:
                raise CorruptBatchError(f"value of length {length}")
            headers.append((key, value))
    except UnicodeDecodeError as error:
        raise CorruptBatchError(f"header key is not UTF-8: {error}") from None
    return headers, position


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    return _read_zigzag(data, position, 32)


def _read_timestamp_delta(data: bytes, position: int, base_timestamp: int) -> tuple[int, int]:
    """Read a varlong, moved by 2**64 if necessary so that base and delta add up within 64 bits.

    Java's arithmetic wraps around, so any two timestamps have a 64-bit difference.
    """
    delta, position = _read_zigzag(data, position, 64)
    return wrap_int64(base_timestamp + delta) - base_timestamp, position


def _read_zigzag(data: bytes, position: int, bits: int) -> tuple[int, int]:
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


def wrap_int64(number: int) -> int:
    """Return the 64-bit two's complement value of `number`, as in Java's arithmetic."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)
