"""One record batch (magic 2) as a view of its bytes. The broker usually needs only this header.

    at  size  field                      at  size  field
     0     8  base offset                23     4  last offset delta
     8     4  length of what follows     27     8  base timestamp (or delete horizon)
    12     4  partition leader epoch     35     8  max timestamp
    16     1  magic                      43     8  producer id
    17     4  CRC-32C of bytes 21..      51     2  producer epoch
    21     2  attributes                 53     4  base sequence
                                         57     4  record count
                                         61        records, compressed as one blob if the codec says so

attributes:  bits 0-2 codec, 3 timestamp type, 4 transactional, 5 control, 6 base timestamp is the delete horizon

Base offset and leader epoch are outside the CRC, so the leader can set them without reading the whole batch.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from ottla.protocol.checksum import crc32c
from ottla.protocol.compression import Codec, decompress
from ottla.protocol.errors import CompressionError, CorruptBatchError, EncodeError
from ottla.protocol.record import Record, decode_records

if TYPE_CHECKING:
    from ottla.protocol.compression import ReadableBuffer

MAGIC: Final = 2
BATCH_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
BATCH_HEADER_BYTES: Final = BATCH_HEADER.size
# The base offset and the length field itself, which `batch_length` does not count.
BATCH_LENGTH_OVERHEAD: Final = 12
BATCH_LENGTH_MIN: Final = BATCH_HEADER_BYTES - BATCH_LENGTH_OVERHEAD
BATCH_LENGTH: Final = struct.Struct(">i")
BATCH_LENGTH_POSITION: Final = 8
MAGIC_POSITION: Final = 16
ATTRIBUTES_POSITION: Final = 21

CODEC_MASK: Final = 0x07
TIMESTAMP_TYPE_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_LEADER_EPOCH: Final = -1
NO_TIMESTAMP: Final = -1

# Kafka's limit for a whole request is also a sane limit for what one batch may decompress to.
RECORDS_BYTES_MAX: Final = 100 * 1024 * 1024

_SEQUENCES: Final = 1 << 31
_OUTSIDE_CRC: Final = struct.Struct(">qii")
_CRC: Final = struct.Struct(">I")
_CRC_POSITION: Final = 17
_ATTRIBUTES: Final = struct.Struct(">h")
_MAX_TIMESTAMP: Final = struct.Struct(">q")
_MAX_TIMESTAMP_POSITION: Final = 35


class TimestampType(IntEnum):
    """Who set the timestamps of a batch: the producer, or the leader when it appended."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


@dataclass(slots=True, init=False, repr=False, eq=False)
class RecordBatch:
    """The batch at `position` of a buffer: header fields as attributes, the bytes as `view`.

    The constructor checks that the whole batch is there; `check` checks magic and CRC. The view keeps the buffer alive
    as long as the batch exists, and an mmap cannot be closed until then.
    """

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    size: int
    view: memoryview

    def __init__(self, buffer: ReadableBuffer, position: int = 0) -> None:
        left = len(buffer) - position
        if left < BATCH_HEADER_BYTES:
            raise CorruptBatchError(f"{left} bytes are too few for a batch")
        (
            self.base_offset,
            self.batch_length,
            self.partition_leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        ) = BATCH_HEADER.unpack_from(buffer, position)
        size = self.batch_length + BATCH_LENGTH_OVERHEAD
        if not BATCH_HEADER_BYTES <= size <= left:
            raise CorruptBatchError(f"batch length {self.batch_length} with {left - BATCH_LENGTH_OVERHEAD} bytes left")
        self.size = size
        view = buffer if type(buffer) is memoryview else memoryview(buffer)
        self.view = view[position : position + size]

    def __repr__(self) -> str:
        return (
            f"RecordBatch(offsets={self.base_offset}..{self.last_offset}, records={self.record_count}, "
            f"size={self.size}, leader_epoch={self.partition_leader_epoch}, attributes={self.attributes:#x}, "
            f"producer={self.producer_id}/{self.producer_epoch}, base_sequence={self.base_sequence})"
        )

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last offset; 0 follows 2147483647."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) % _SEQUENCES

    @property
    def has_producer(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def is_compressed(self) -> bool:
        return self.attributes & CODEC_MASK != 0

    @property
    def codec(self) -> Codec:
        try:
            return Codec(self.attributes & CODEC_MASK)
        except ValueError:
            raise CorruptBatchError(f"unknown codec {self.attributes & CODEC_MASK}") from None

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType.LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_BIT else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def has_delete_horizon(self) -> bool:
        """Whether the base timestamp field holds the time from which tombstones in this batch may be removed."""
        return self.attributes & DELETE_HORIZON_BIT != 0

    def check(self) -> None:
        """Raise CorruptBatchError unless magic and CRC are correct."""
        if self.magic != MAGIC:
            raise _wrong_magic(self.magic)
        crc = crc32c(self.view[ATTRIBUTES_POSITION:])
        if crc != self.crc:
            raise CorruptBatchError(f"the CRC is {crc:08x}, but the batch says {self.crc:08x}")

    def patch(self, base_offset: int, partition_leader_epoch: int) -> None:
        """Write the two fields that the leader assigns; the buffer must be writable."""
        _OUTSIDE_CRC.pack_into(self.view, 0, base_offset, self.batch_length, partition_leader_epoch)
        self.base_offset = base_offset
        self.partition_leader_epoch = partition_leader_epoch

    def set_max_timestamp(self, timestamp_type: TimestampType, max_timestamp: int) -> None:
        """Write the timestamp type and the max timestamp, which in a LOG_APPEND_TIME batch counts for all its records.

        Both are covered by the CRC, so this reads the whole batch.
        """
        view = self.view
        if timestamp_type is TimestampType.LOG_APPEND_TIME:
            self.attributes |= TIMESTAMP_TYPE_BIT
        else:
            self.attributes &= ~TIMESTAMP_TYPE_BIT
        self.max_timestamp = max_timestamp
        _ATTRIBUTES.pack_into(view, ATTRIBUTES_POSITION, self.attributes)
        _MAX_TIMESTAMP.pack_into(view, _MAX_TIMESTAMP_POSITION, max_timestamp)
        self.crc = _write_crc(view)

    def records(self, max_size: int = RECORDS_BYTES_MAX) -> Iterator[Record]:
        """Yield the records, decompressed to at most `max_size` bytes.

        They are decoded during the iteration. It raises CorruptBatchError when the next record is malformed.
        """
        if self.magic != MAGIC:
            raise _wrong_magic(self.magic)
        view = self.view[BATCH_HEADER_BYTES:]
        # A batch that the cleaner emptied has no compressed data, whatever its codec.
        if self.is_compressed and view:
            try:
                data = decompress(self.codec, view, max_size)
            except CompressionError as error:
                raise CorruptBatchError(str(error)) from error
        else:
            data = bytes(view)
        log_append_time = self.max_timestamp if self.attributes & TIMESTAMP_TYPE_BIT else None
        return decode_records(data, self.record_count, self.base_offset, self.base_timestamp, log_append_time)


def batches(buffer: ReadableBuffer, *, strict: bool = False) -> Iterator[RecordBatch]:
    """Yield the batches that follow each other in a buffer.

    A fetch response may end inside a batch; this part is ignored, or with `strict` a CorruptBatchError.
    """
    position = 0
    end = len(buffer)
    while end - position >= BATCH_LENGTH_OVERHEAD:
        (length,) = BATCH_LENGTH.unpack_from(buffer, position + BATCH_LENGTH_POSITION)
        if length < BATCH_LENGTH_MIN:
            raise CorruptBatchError(f"batch length {length} is less than a header")
        if length > end - position - BATCH_LENGTH_OVERHEAD:
            break
        batch = RecordBatch(buffer, position)
        yield batch
        position += batch.size
    if strict and position != end:
        raise CorruptBatchError(f"the last batch is cut short: {end - position} bytes left")


def write_header(
    batch: bytearray,
    *,
    base_offset: int,
    partition_leader_epoch: int,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    record_count: int,
) -> None:
    """Fill in the 61-byte header of a batch whose records are in place."""
    try:
        BATCH_HEADER.pack_into(
            batch,
            0,
            base_offset,
            len(batch) - BATCH_LENGTH_OVERHEAD,
            partition_leader_epoch,
            MAGIC,
            0,
            attributes,
            last_offset_delta,
            base_timestamp,
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            record_count,
        )
    except struct.error as error:
        raise EncodeError(f"a field of the batch header is out of range: {error}") from error
    _write_crc(batch)


def _write_crc(batch: bytearray | memoryview) -> int:
    with memoryview(batch) as view:
        crc = crc32c(view[ATTRIBUTES_POSITION:])
    _CRC.pack_into(batch, _CRC_POSITION, crc)
    return crc


def _wrong_magic(magic: int) -> CorruptBatchError:
    return CorruptBatchError(f"magic {magic} where only {MAGIC} is read")


def first_timestamp(header: ReadableBuffer) -> int | None:
    """Return the time of a batch's first record, from the bytes of its header; None if it has no time.

    If the leader set the times, or the field of the first time is in use for something else, it is the last time.
    """
    fields = BATCH_HEADER.unpack_from(header)
    attributes, base_timestamp, max_timestamp = fields[5], fields[7], fields[8]
    is_last_time = attributes & (TIMESTAMP_TYPE_BIT | DELETE_HORIZON_BIT)
    timestamp: int = max_timestamp if is_last_time else base_timestamp
    return timestamp if timestamp >= 0 else None
