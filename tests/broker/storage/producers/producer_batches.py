"""Batches of producers: data and markers."""

from __future__ import annotations

from ottla.protocol.control_records import ControlType, EndTransactionMarker, build_marker_batch
from ottla.protocol.records import TRANSACTIONAL_BIT, RecordBatch, write_header


def data(
    sequence: int,
    count: int = 1,
    *,
    producer_id: int = 12,
    epoch: int = 0,
    transactional: bool = False,
    timestamp: int = 5,
) -> RecordBatch:
    """A batch as far as producer state looks at it: the header."""
    batch = bytearray(61)
    write_header(
        batch,
        base_offset=0,
        partition_leader_epoch=0,
        attributes=TRANSACTIONAL_BIT if transactional else 0,
        last_offset_delta=count - 1,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        record_count=count,
    )
    return RecordBatch(batch)


def end(
    control_type: ControlType,
    *,
    producer_id: int = 12,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    timestamp: int = 6,
) -> RecordBatch:
    """A marker batch."""
    marker = EndTransactionMarker(control_type, coordinator_epoch)
    return RecordBatch(build_marker_batch(marker, producer_id=producer_id, producer_epoch=epoch, timestamp=timestamp))
