"""Reads the log of an internal topic from its start."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.broker.storage.log import Log
from ottla.protocol.records import RecordBatch, batches


def batches_to_end(source: Log, end_offset: int, buffer_bytes: int) -> Iterator[RecordBatch]:
    """Yield the batches below an offset, checked, reading a buffer at a time.

    Raises KafkaError, CorruptBatchError or OSError if the log cannot be read.
    """
    offset = source.log_start_offset
    while offset < end_offset:
        piece = source.read(offset, buffer_bytes)
        if piece is None:
            return
        for batch in batches(piece.read(), strict=True):
            if batch.base_offset >= end_offset:
                return
            batch.check()
            yield batch
            offset = batch.next_offset
