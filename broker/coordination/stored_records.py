"""Records of the internal topics, and the batches in which they are appended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla.broker.storage.producers.verification import VerificationGuard
from ottla.protocol.compression import Codec
from ottla.protocol.record_batch_builder import RecordBatchBuilder
from ottla.protocol.records import RecordBatch


class StoredRecord(NamedTuple):
    """A key and its value. The value None deletes the key."""

    key: bytes
    value: bytes | None


class TransactionalProducer(NamedTuple):
    """The producer in whose transaction records are written."""

    producer_id: int
    producer_epoch: int
    # If the coordinator of the transaction was asked about the first ones.
    guard: VerificationGuard | None = None


def batch_of(
    records: Sequence[StoredRecord],
    timestamp_ms: int,
    codec: Codec = Codec.NONE,
    producer: TransactionalProducer | None = None,
) -> RecordBatch:
    """Return a batch with the records. With a producer it is transactional; nobody looks at its sequence."""
    builder = RecordBatchBuilder()
    for key, value in records:
        builder.append(timestamp_ms, key, value)
    if producer is None:
        return RecordBatch(builder.build(codec=codec))
    return RecordBatch(
        builder.build(
            codec=codec,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=0,
            transactional=True,
        )
    )
