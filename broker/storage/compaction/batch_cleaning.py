"""What compaction leaves of a batch.

A record stays if it lies above the offsets that were mapped; or if it has a key, no later record of that key was
mapped, and it is not a tombstone whose time is over. Records of aborted transactions go at once.

A tombstone must be there long enough for a reader that saw the older value to see it too. So the first compaction
that has removed what the tombstone deletes writes a delete horizon into the batch, and one after the horizon removes
it. Markers of transactions go the same way once the last batch of their transaction is gone.

The last batch of every producer that is known stays, if need be without records: a replay of the log finds the
producer's epoch and sequence in it. Whatever else happens to a batch, its offsets, producer, epochs, codec and
timestamp type stay as they are; one that loses nothing is copied byte for byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.broker.storage.compaction.cleaned_transactions import CleanedTransactions
from ottla.broker.storage.compaction.offset_map import OffsetMap
from ottla.protocol.identifiers import NO_OFFSET
from ottla.protocol.record import Record
from ottla.protocol.record_batch_rewrite import rewrite_batch
from ottla.protocol.records import RecordBatch

_TIMESTAMP_MAX = 2**63 - 1


class LastOfProducer(NamedTuple):
    """The last batch of a producer in the log; NO_OFFSET where only a marker tells of its epoch."""

    offset: int
    epoch: int


class BatchCleaner:
    """Cleans the batches of one log, which come in order."""

    def __init__(
        self,
        offsets: OffsetMap,
        mapped_up_to: int,
        transactions: CleanedTransactions,
        producers: Mapping[int, LastOfProducer],
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._last_offset_of = offsets.get
        # The offset behind the last one that was mapped.
        self._mapped_up_to = mapped_up_to
        self._transactions = transactions
        self._producers = producers
        self._now_ms = now_ms
        horizon = now_ms + delete_retention_ms
        # None: so far away that no header can hold it, and nothing goes.
        self._new_horizon = horizon if horizon <= _TIMESTAMP_MAX else None
        self.records_kept = 0

    def data(self, batch: RecordBatch) -> bytearray | memoryview | None:
        """Return what stays of a batch of data; None for nothing."""
        is_aborted = self._transactions.is_aborted(batch)
        if not is_aborted and batch.base_offset >= self._mapped_up_to:
            self.records_kept += batch.record_count
            return batch.view
        kept = [] if is_aborted else self._kept(batch)
        if not kept:
            last = self._producers.get(batch.producer_id)
            if last is None or last.offset != batch.last_offset:
                return None
            return rewrite_batch(batch, ()) if batch.record_count else batch.view
        self.records_kept += len(kept)
        # Above what was mapped, older values are still there: a horizon would come too early.
        is_mapped = batch.last_offset < self._mapped_up_to
        horizon = None
        if is_mapped and not batch.has_delete_horizon and any(record.value is None for record in kept):
            horizon = self._new_horizon
        if horizon is None and len(kept) == batch.record_count:
            return batch.view
        return rewrite_batch(batch, kept, delete_horizon=horizon)

    def marker(self, batch: RecordBatch, *, is_spent: bool) -> bytearray | memoryview | None:
        """Return what stays of a control batch, whose transaction has no batches left if it is spent."""
        if is_spent and not self._tells_epoch(batch):
            if batch.record_count == 0:
                return None
            if not batch.has_delete_horizon and self._new_horizon is not None:
                self.records_kept += batch.record_count
                return rewrite_batch(batch, batch.records(), delete_horizon=self._new_horizon)
            if batch.has_delete_horizon and batch.base_timestamp <= self._now_ms:
                return None
        self.records_kept += batch.record_count
        return batch.view

    def _tells_epoch(self, batch: RecordBatch) -> bool:
        """Whether nothing but this marker tells a replay of the producer's epoch."""
        last = self._producers.get(batch.producer_id)
        return last is not None and last.offset == NO_OFFSET and last.epoch == batch.producer_epoch

    def _kept(self, batch: RecordBatch) -> list[Record]:
        last_offset_of, mapped_up_to = self._last_offset_of, self._mapped_up_to
        keeps_tombstones = not batch.has_delete_horizon or self._now_ms < batch.base_timestamp
        kept = []
        for record in batch.records():
            offset, _, key, value, _ = record
            if offset >= mapped_up_to or (
                key is not None and (value is not None or keeps_tombstones) and offset >= last_offset_of(key)
            ):
                kept.append(record)
        return kept
