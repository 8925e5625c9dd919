"""Writing record batches, record by record, for producers and internal topics.

The bytes are those that Java's builder writes. Layouts are in `records.py` (batch) and `record.py` (record).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from ottla.protocol.compression import Codec, compress
from ottla.protocol.errors import EncodeError
from ottla.protocol.record import wrap_int64
from ottla.protocol.records import (
    BATCH_HEADER_BYTES,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    write_header,
)

HeadersToWrite: TypeAlias = Sequence[tuple[str, bytes | None]]

# The maximum that a record adds to the size of its key, value and headers: every varint at its longest.
RECORD_OVERHEAD_MAX: Final = 36
HEADER_OVERHEAD_MAX: Final = 10

# The varints of the numbers from 0 up that take one or two bytes; nearly every varint of a record is in here. The first
# builder fills it: those who only read records do without.
_VARINTS_SIZE: Final = 1 << 13
_VARINTS: Final[list[bytes]] = []
_NULL: Final = b"\x01"
_NO_HEADERS: Final = b"\x00"
_NO_ATTRIBUTES: Final = b"\x00"


class RecordBatchBuilder:
    """Collects records and builds batches from them. `build` may be called again, for example with a new base sequence.

    A `delete_horizon` becomes the base timestamp of the batch, and record timestamps are relative to it.
    """

    __slots__ = (
        "_base_timestamp",
        "_buffer",
        "_has_delete_horizon",
        "_last_offset_delta",
        "_max_timestamp",
        "_record_count",
    )

    def __init__(self, delete_horizon: int | None = None) -> None:
        if not _VARINTS:
            _VARINTS[:] = _short_varints()
        # Space for the header is reserved, so the length of the buffer is the size of the batch.
        self._buffer = bytearray(BATCH_HEADER_BYTES)
        self._base_timestamp = delete_horizon
        self._has_delete_horizon = delete_horizon is not None
        self._max_timestamp = NO_TIMESTAMP
        self._last_offset_delta = -1
        self._record_count = 0

    @property
    def size(self) -> int:
        """The size of the batch so far, before compression."""
        return len(self._buffer)

    @property
    def record_count(self) -> int:
        return self._record_count

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp so far; -1 before the first record."""
        return self._max_timestamp

    def append(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: HeadersToWrite = (),
        offset_delta: int | None = None,
    ) -> int:
        """Add a record at the next offset, or at `offset_delta` to leave a gap; return its offset delta."""
        varints = _VARINTS
        if offset_delta is None:
            offset_delta = self._last_offset_delta + 1
        elif offset_delta <= self._last_offset_delta:
            raise EncodeError(f"offset delta {offset_delta} after {self._last_offset_delta}")
        base_timestamp = self._base_timestamp
        timestamp_delta = timestamp - (timestamp if base_timestamp is None else base_timestamp)

        if key is None:
            key_length, key = _NULL, b""
        else:
            length = len(key)
            key_length = varints[length] if length < _VARINTS_SIZE else _varint(length)
        if value is None:
            value_length, value = _NULL, b""
        else:
            length = len(value)
            value_length = varints[length] if length < _VARINTS_SIZE else _varint(length)
        record = b"".join(
            (
                _NO_ATTRIBUTES,
                varints[timestamp_delta] if 0 <= timestamp_delta < _VARINTS_SIZE else _varlong(timestamp_delta),
                varints[offset_delta] if offset_delta < _VARINTS_SIZE else _varint(offset_delta),
                key_length,
                key,
                value_length,
                value,
                _encode_headers(headers) if headers else _NO_HEADERS,
            )
        )
        length = len(record)
        buffer = self._buffer
        buffer += varints[length] if length < _VARINTS_SIZE else _varint(length)
        buffer += record

        # Nothing after this line fails, so a record that cannot be encoded leaves no trace.
        if base_timestamp is None:
            self._base_timestamp = timestamp
        if timestamp > self._max_timestamp or self._record_count == 0:
            self._max_timestamp = timestamp
        self._last_offset_delta = offset_delta
        self._record_count += 1
        return offset_delta

    def build(
        self,
        *,
        base_offset: int = 0,
        last_offset_delta: int | None = None,
        partition_leader_epoch: int = NO_LEADER_EPOCH,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        transactional: bool = False,
        control: bool = False,
        codec: Codec = Codec.NONE,
        level: int | None = None,
        log_append_time: int | None = None,
    ) -> bytearray:
        """Return the batch. With `log_append_time` its timestamp type is LOG_APPEND_TIME.

        `last_offset_delta` is for batches whose last records were removed.
        """
        base_timestamp = self._base_timestamp
        if base_timestamp is None or self._record_count == 0:
            raise EncodeError("the batch has no records")
        if last_offset_delta is None:
            last_offset_delta = self._last_offset_delta
        elif last_offset_delta < self._last_offset_delta:
            raise EncodeError(f"last offset delta {last_offset_delta} is before that of the last record")
        if codec is Codec.NONE:
            batch = self._buffer.copy()
        else:
            batch = bytearray(BATCH_HEADER_BYTES)
            with memoryview(self._buffer) as view, view[BATCH_HEADER_BYTES:] as records:
                batch += compress(codec, records, level)
        attributes = (
            codec
            | (TIMESTAMP_TYPE_BIT if log_append_time is not None else 0)
            | (TRANSACTIONAL_BIT if transactional else 0)
            | (CONTROL_BIT if control else 0)
            | (DELETE_HORIZON_BIT if self._has_delete_horizon else 0)
        )
        write_header(
            batch,
            base_offset=base_offset,
            partition_leader_epoch=partition_leader_epoch,
            attributes=attributes,
            last_offset_delta=last_offset_delta,
            base_timestamp=base_timestamp,
            max_timestamp=self._max_timestamp if log_append_time is None else log_append_time,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            record_count=self._record_count,
        )
        return batch


def record_size_max(key: bytes | None, value: bytes | None, headers: HeadersToWrite = ()) -> int:
    """Return the maximum that this record can add to the size of a batch."""
    size = RECORD_OVERHEAD_MAX + len(key or b"") + len(value or b"")
    for header_key, header_value in headers:
        size += HEADER_OVERHEAD_MAX + len(header_key.encode(errors="surrogatepass")) + len(header_value or b"")
    return size


def _encode_headers(headers: HeadersToWrite) -> bytes:
    chunks = [_varint(len(headers))]
    for key, value in headers:
        try:
            encoded_key = key.encode()
        except UnicodeEncodeError as error:
            raise EncodeError(f"header key {key!r} cannot be encoded as UTF-8") from error
        chunks += (_varint(len(encoded_key)), encoded_key)
        chunks += (_NULL,) if value is None else (_varint(len(value)), value)
    return b"".join(chunks)


def _short_varints() -> list[bytes]:
    one_byte = [bytes((number << 1,)) for number in range(64)]
    return one_byte + [bytes((number << 1 & 0x7F | 0x80, number >> 6)) for number in range(64, _VARINTS_SIZE)]


def _varint(length: int) -> bytes:
    """Encode a length or a count. One that does not fit in an int32 does not fit in any batch."""
    if length < _VARINTS_SIZE:
        return _VARINTS[length]
    if length >> 31:
        raise EncodeError(f"{length} is too large for a record")
    return _unsigned_varint(length << 1)


def _varlong(number: int) -> bytes:
    """Encode a difference of two timestamps, which wraps around at 64 bits as in Java."""
    number = wrap_int64(number)
    return _unsigned_varint(number << 1 ^ number >> 63)


def _unsigned_varint(number: int) -> bytes:
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
