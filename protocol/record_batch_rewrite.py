"""Rewriting a record batch: without some of its records for compaction, or with another codec."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.protocol.compression import Codec
from ottla.protocol.record import Record
from ottla.protocol.record_batch_builder import RecordBatchBuilder
from ottla.protocol.records import (
    BATCH_HEADER_BYTES,
    CONTROL_BIT,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    RecordBatch,
    TimestampType,
    write_header,
)


def rewrite_batch(
    batch: RecordBatch,
    records: Iterable[Record],
    *,
    codec: Codec | None = None,
    level: int | None = None,
    delete_horizon: int | None = None,
) -> bytearray:
    """Return the same batch with only these records. Offsets, producer fields, leader epoch and flags stay.

    The codec and the delete horizon stay too, unless given. Without records the batch becomes a bare header without
    either, which keeps the producer's last sequence in the log.
    """
    if delete_horizon is None and batch.has_delete_horizon:
        delete_horizon = batch.base_timestamp
    builder = RecordBatchBuilder(delete_horizon)
    for record in records:
        builder.append(
            record.timestamp, record.key, record.value, record.headers, offset_delta=record.offset - batch.base_offset
        )
    if builder.record_count == 0:
        return _emptied(batch)
    is_log_append_time = batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    return builder.build(
        base_offset=batch.base_offset,
        last_offset_delta=batch.last_offset_delta,
        partition_leader_epoch=batch.partition_leader_epoch,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        transactional=batch.is_transactional,
        control=batch.is_control,
        codec=batch.codec if codec is None else codec,
        level=level,
        log_append_time=batch.max_timestamp if is_log_append_time else None,
    )


def _emptied(batch: RecordBatch) -> bytearray:
    empty = bytearray(BATCH_HEADER_BYTES)
    write_header(
        empty,
        base_offset=batch.base_offset,
        partition_leader_epoch=batch.partition_leader_epoch,
        attributes=batch.attributes & (TIMESTAMP_TYPE_BIT | TRANSACTIONAL_BIT | CONTROL_BIT),
        last_offset_delta=batch.last_offset_delta,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=batch.max_timestamp,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        record_count=0,
    )
    return empty
