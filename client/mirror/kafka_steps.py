"""How batches of the source become appends that keep their offsets in a cluster that gives offsets itself. No I/O.

Such a cluster gives a batch the next offsets of its log. So whatever is not a record for its readers must take up as
many offsets as it does in the source: markers, records of aborted transactions, and what compaction has removed. A
transaction marker takes one offset, and no consumer ever sees it: those offsets are filled with markers.

Batches are sent under the producer id of the mirror. The records in them stay as they are, unless a batch has holes
itself, or says something that only a broker may say; then its records are put into new batches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from ottla.protocol.compression import Codec
from ottla.protocol.messages.fetch import AbortedTransaction
from ottla.protocol.record import Record
from ottla.protocol.record_batch_builder import RecordBatchBuilder
from ottla.protocol.records import (
    CODEC_MASK,
    DELETE_HORIZON_BIT,
    TIMESTAMP_TYPE_BIT,
    RecordBatch,
    write_header,
)

# What a producer may not send.
_OF_BROKERS: Final = TIMESTAMP_TYPE_BIT | DELETE_HORIZON_BIT
SEQUENCES: Final = 1 << 31


class Fill(NamedTuple):
    """Take up offsets that have no record."""

    offsets: int


class Send(NamedTuple):
    """Append a batch that has a record for each of its offsets."""

    batch: RecordBatch


class Producer(NamedTuple):
    """Who sends the batches."""

    producer_id: int
    producer_epoch: int


def steps(
    batches: Sequence[RecordBatch], end_offset: int, aborted: Sequence[AbortedTransaction] = ()
) -> Iterator[Fill | Send]:
    """Yield what to append to a log that ends at an offset, in order; two fills never follow each other."""
    hole = 0
    for step in _steps(batches, end_offset, aborted):
        if isinstance(step, Fill):
            hole += step.offsets
            continue
        if hole:
            yield Fill(hole)
            hole = 0
        yield step
    if hole:
        yield Fill(hole)


def _steps(
    batches: Sequence[RecordBatch], end_offset: int, aborted: Sequence[AbortedTransaction]
) -> Iterator[Fill | Send]:
    begins = deque(sorted(aborted, key=lambda each: each.first_offset))
    # Producers whose transaction at this point of the log was aborted.
    aborting: set[int] = set()
    expected = end_offset
    for batch in batches:
        while begins and begins[0].first_offset <= batch.last_offset:
            aborting.add(begins.popleft().producer_id)
        if batch.last_offset < expected:
            continue
        is_skipped = batch.is_control or batch.record_count == 0
        if batch.is_control:
            aborting.discard(batch.producer_id)
        elif batch.is_transactional and batch.producer_id in aborting:
            is_skipped = True
        if is_skipped:
            yield Fill(batch.next_offset - expected)
        elif batch.base_offset < expected or not _is_sendable(batch):
            yield from _rebuilt(batch, expected)
        else:
            yield Fill(batch.base_offset - expected)
            yield Send(batch)
        expected = batch.next_offset


def _is_sendable(batch: RecordBatch) -> bool:
    return batch.record_count == batch.last_offset_delta + 1 and not batch.attributes & _OF_BROKERS


def _rebuilt(batch: RecordBatch, expected: int) -> Iterator[Fill | Send]:
    """Yield batches with the records from an offset on, one for each run of offsets without a hole."""
    run: list[Record] = []
    for record in batch.records():
        if record.offset < expected:
            continue
        if record.offset > expected:
            if run:
                yield _built(run, batch)
                run = []
            yield Fill(record.offset - expected)
        run.append(record)
        expected = record.offset + 1
    if run:
        yield _built(run, batch)
    yield Fill(batch.next_offset - expected)


def _built(records: Sequence[Record], like: RecordBatch) -> Send:
    builder = RecordBatchBuilder()
    for record in records:
        builder.append(record.timestamp, record.key, record.value, record.headers)
    return Send(RecordBatch(builder.build(base_offset=records[0].offset, codec=like.codec)))


def sent_by(batch: RecordBatch, producer: Producer, sequence: int) -> bytearray:
    """Return a batch as a producer sends it: with its id and sequence, outside a transaction, the records untouched."""
    sent = bytearray(batch.view)
    write_header(
        sent,
        base_offset=0,
        partition_leader_epoch=-1,
        attributes=batch.attributes & CODEC_MASK,
        last_offset_delta=batch.last_offset_delta,
        base_timestamp=batch.base_timestamp,
        max_timestamp=batch.max_timestamp,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=sequence,
        record_count=batch.record_count,
    )
    return sent


def filler(count: int, timestamp: int) -> RecordBatch:
    """Return a batch of empty records, which compresses to almost nothing; for offsets before the start of a log."""
    builder = RecordBatchBuilder()
    for _ in range(count):
        builder.append(timestamp, b"", None)
    return RecordBatch(builder.build(codec=Codec.GZIP))
