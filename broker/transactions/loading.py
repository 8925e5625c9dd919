"""Loads the transactional ids of a partition of `__transaction_state`. The last record of each id counts."""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.coordination.log_reading import batches_to_end
from ottla.broker.coordination.shards import Loaded
from ottla.broker.storage.log import Log
from ottla.broker.transactions.records import read_transaction_key, read_transaction_value
from ottla.broker.transactions.transaction import StoredTransaction


def load_transactions(
    source: Log, buffer_bytes: int, is_wanted: Callable[[], bool]
) -> Loaded[StoredTransaction] | None:
    """Read a log up to its current end; return None as soon as `is_wanted` returns False.

    Raises KafkaError, CorruptBatchError, DecodeError or OSError if the log cannot be read.
    """
    newest: dict[bytes, bytes] = {}
    end_offset, record_count = source.log_end_offset, 0
    for batch in batches_to_end(source, end_offset, buffer_bytes):
        if not is_wanted():
            return None
        record_count += batch.record_count
        for _, _, key, value, _ in batch.records():
            if key is None:
                continue
            if value is None:
                newest.pop(key, None)
            else:
                newest[key] = value
    entries = {
        transactional_id: read_transaction_value(value)
        for key, value in newest.items()
        if (transactional_id := read_transaction_key(key)) is not None
    }
    return Loaded(entries, end_offset, record_count)
