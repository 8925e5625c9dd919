"""Splits a batch that is too large for its topic (KIP-126).

A producer does not know max.message.bytes of a topic; it learns of it when a batch is refused. The records of the batch
are then sent in smaller batches, which keep its place and its sequences.
"""

from __future__ import annotations

from ottla.protocol.record_batch_builder import RecordBatchBuilder, record_size_max
from ottla.protocol.records import RecordBatch


def halves(builder: RecordBatchBuilder) -> list[RecordBatchBuilder]:
    """Return the records of a batch in order, in batches of at most half its size or of one record."""
    size_max = builder.size // 2
    made: list[RecordBatchBuilder] = []
    for record in RecordBatch(builder.build()).records():
        # Never all records in one: then the last one would have to fit in half of the size.
        if not made or made[-1].size + record_size_max(record.key, record.value, record.headers) > size_max:
            made.append(RecordBatchBuilder())
        made[-1].append(record.timestamp, record.key, record.value, record.headers)
    return made
