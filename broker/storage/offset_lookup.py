"""Offsets by time: the first record at or after a timestamp, and the record with the largest one. Times by offset.

The log's lock is held while the indexes say where to look. Batches are read and opened without it; they stay readable
whatever happens to the log meanwhile. A lookup goes from segment to segment, so it keeps one file open and not all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ottla.broker.storage.errors import CorruptIndexError
from ottla.broker.storage.log import FAILURES, Log
from ottla.broker.storage.segment import Segment
from ottla.broker.storage.segment_file import read_batch
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.record import Record
from ottla.protocol.records import BATCH_HEADER_BYTES, NO_TIMESTAMP, RecordBatch, first_timestamp

Batches = Iterator[tuple[int, RecordBatch]]


class OffsetAtTime(NamedTuple):
    """A record found by its timestamp."""

    offset: int
    timestamp: int
    leader_epoch: int


def offset_for_timestamp(log: Log, timestamp: int) -> OffsetAtTime | None:
    """Return the first record, by offset, whose timestamp is `timestamp` or later."""
    try:
        return _offset_for_timestamp(log, timestamp)
    except FAILURES as error:
        raise log.storage_error(error) from error


def offset_of_max_timestamp(log: Log) -> OffsetAtTime | None:
    """Return the record with the largest timestamp; the first if there are several."""
    try:
        return _offset_of_max_timestamp(log)
    except FAILURES as error:
        raise log.storage_error(error) from error


def time_of_record(log: Log, offset: int) -> int | None:
    """Return the time of the first committed record at or after `offset`; None if there is none.

    Only headers are read, so this is the time of the first record in its batch.
    """
    header = bytearray(BATCH_HEADER_BYTES)
    try:
        piece = log.read(max(offset, log.log_start_offset), 1, log.high_watermark)
        if piece is None:
            return None
        piece.read_into(memoryview(header), 0)
    except KafkaError as error:
        if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            raise
        # The log was truncated or trimmed in the meantime.
        return None
    except FAILURES as error:
        raise log.storage_error(error) from error
    return first_timestamp(header)


def _offset_for_timestamp(log: Log, timestamp: int) -> OffsetAtTime | None:
    from_offset = log.log_start_offset
    while (place := _next_place(log, timestamp, from_offset)) is not None:
        segment_end, batches = place
        for _, batch in batches:
            if batch.max_timestamp < timestamp or batch.last_offset < from_offset:
                continue
            for record in _records(batch):
                if record.timestamp >= timestamp and record.offset >= from_offset:
                    return _found(record, batch)
        from_offset = segment_end
    return None


def _offset_of_max_timestamp(log: Log) -> OffsetAtTime | None:
    with log.lock:
        largest, largest_segment = (NO_TIMESTAMP, -1), log.segments[0]
        for segment in log.segments:
            candidate = _largest_from(segment, log.log_start_offset)
            if candidate[0] > largest[0]:
                largest, largest_segment = candidate, segment
        if largest[0] == NO_TIMESTAMP:
            return None
        log_start_offset = log.log_start_offset
        batches = _batches_from(largest_segment, largest[1])
    _, batch = next(batches)
    records = [record for record in _records(batch) if record.offset >= log_start_offset]
    # The header may claim a later timestamp than any record has: the producer wrote both.
    return _found(max(records, key=lambda record: record.timestamp), batch) if records else None


def _next_place(log: Log, timestamp: int, from_offset: int) -> tuple[int, Batches] | None:
    """Return the end offset of the next segment with records as late as `timestamp`, and the batches to look at."""
    with log.lock:
        for segment in log.segments[log.index_of(from_offset) :]:
            if segment.next_offset > from_offset and segment.largest_timestamp[0] >= timestamp and segment.size:
                return segment.next_offset, _batches_from(segment, max(_begin(segment, timestamp), from_offset))
    return None


def _largest_from(segment: Segment, log_start_offset: int) -> tuple[int, int]:
    """Return the largest timestamp and the last offset of its batch, of the records from the log start on."""
    if segment.base_offset >= log_start_offset:
        return segment.largest_timestamp
    largest = (NO_TIMESTAMP, -1)
    for header in segment.headers_from(log_start_offset) if segment.next_offset > log_start_offset else ():
        timestamp = header.max_timestamp
        if header.base_offset < log_start_offset <= header.last_offset:
            batch = read_batch(segment.file.fd, segment.path, header.position, segment.size)
            kept = (record.timestamp for record in _records(batch) if record.offset >= log_start_offset)
            timestamp = max(kept, default=NO_TIMESTAMP)
        if header.last_offset >= log_start_offset and timestamp > largest[0]:
            largest = (timestamp, header.last_offset)
    return largest


def _begin(segment: Segment, timestamp: int) -> int:
    """Return an offset below which no record is as late as `timestamp`; the time index is checked against the log."""
    try:
        entry = segment.time_index.lookup(timestamp)
        if entry is None:
            return segment.base_offset
        batch = segment.find(entry[1])
        if batch is not None and (batch.max_timestamp, batch.last_offset) == entry:
            return entry[1] + 1
    except CorruptIndexError:
        pass
    segment.rebuild_indexes()
    return segment.base_offset


def _batches_from(segment: Segment, offset: int) -> Batches:
    batch = segment.find(offset)
    return segment.lend_batches(segment.size if batch is None else batch.position)


def _records(batch: RecordBatch) -> Iterator[Record]:
    batch.check()
    return batch.records()


def _found(record: Record, batch: RecordBatch) -> OffsetAtTime:
    return OffsetAtTime(record.offset, record.timestamp, batch.partition_leader_epoch)
