"""Offsets by time: the first record at or after a timestamp, and the record with the largest one.

The lock is held while the indexes say where to look; batches are read and opened without it, through a slice that
stays valid whatever happens to the log meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ottla.broker.storage.errors import CorruptIndexError
from ottla.broker.storage.file_slice import FileSlice
from ottla.broker.storage.log import Log
from ottla.broker.storage.segment import Segment
from ottla.protocol.record import Record
from ottla.protocol.records import NO_TIMESTAMP, RecordBatch, batches

_READ_BYTES = 1024 * 1024


class OffsetAtTime(NamedTuple):
    """A record found by its timestamp."""

    offset: int
    timestamp: int
    leader_epoch: int


def offset_for_timestamp(log: Log, timestamp: int) -> OffsetAtTime | None:
    """Return the first record, by offset, whose timestamp is `timestamp` or later."""
    with log.lock:
        places = [
            _slice_from(segment, _begin(segment, timestamp))
            for segment in log.segments
            if segment.size and segment.largest_timestamp[0] >= timestamp
        ]
        log_start_offset = log.log_start_offset
    for place in places:
        for batch in _batches(place):
            if batch.max_timestamp < timestamp or batch.last_offset < log_start_offset:
                continue
            for record in batch.records():
                if record.timestamp >= timestamp and record.offset >= log_start_offset:
                    return _found(record, batch)
    return None


def offset_of_max_timestamp(log: Log) -> OffsetAtTime | None:
    """Return the record with the largest timestamp; the first one of several."""
    with log.lock:
        filled = [segment for segment in log.segments if segment.largest_timestamp[0] != NO_TIMESTAMP]
        if not filled:
            return None
        segment = max(filled, key=lambda segment: segment.largest_timestamp[0])
        timestamp, offset = segment.largest_timestamp
        place = _slice_from(segment, offset)
    for batch in _batches(place):
        for record in batch.records():
            if record.timestamp == timestamp:
                return _found(record, batch)
    return None


def _begin(segment: Segment, timestamp: int) -> int:
    """Return an offset below which no record is as late as `timestamp`, from the time index if that can be believed."""
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


def _slice_from(segment: Segment, offset: int) -> FileSlice:
    batch = segment.find(offset)
    position = segment.size if batch is None else batch.position
    return FileSlice(segment.file, position, segment.size - position)


def _batches(place: FileSlice) -> Iterator[RecordBatch]:
    """Read a slice piece by piece, whole batches at a time."""
    position, end = place.position, place.position + place.length
    wanted = _READ_BYTES
    while position < end:
        piece = FileSlice(place.file, position, min(wanted, end - position)).read()
        taken = 0
        for batch in batches(piece):
            yield batch
            taken += batch.size
        if taken == 0 and len(piece) == end - position:
            return
        position += taken
        wanted = _READ_BYTES if taken else wanted * 2


def _found(record: Record, batch: RecordBatch) -> OffsetAtTime:
    return OffsetAtTime(record.offset, record.timestamp, batch.partition_leader_epoch)
