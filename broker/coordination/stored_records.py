"""Records of the internal topics, and the batches in which they are appended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla.protocol.compression import Codec
from ottla.protocol.record_batch_builder import RecordBatchBuilder
from ottla.protocol.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, RecordBatch


class StoredRecord(NamedTuple):
    """A key and its value. The value None deletes the key."""

    key: bytes
    value: bytes | None


def batch_of(
    records: Sequence[StoredRecord],
    timestamp_ms: int,
    codec: Codec = Codec.NONE,
    *,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
) -> RecordBatch:
    """Return a batch with the records. With a producer id, the batch is transactional."""
    builder = RecordBatchBuilder()
    for key, value in records:
        builder.append(timestamp_ms, key, value)
    is_transactional = producer_id != NO_PRODUCER_ID
    return RecordBatch(
        builder.build(
            codec=codec, producer_id=producer_id, producer_epoch=producer_epoch, transactional=is_transactional
        )
    )
