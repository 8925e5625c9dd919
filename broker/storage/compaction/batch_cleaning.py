"""What compaction keeps of a batch.

A record is kept if it lies above the mapped offsets; or if it has a key, no later record of that key was mapped, and it
is not an expired tombstone. Records of aborted transactions are removed at once.

A tombstone must stay long enough for a reader that saw the older value to see the tombstone too. So the compaction that
removes the older value writes a delete horizon into the batch of the tombstone, and a compaction after the horizon
removes the tombstone. Transaction markers are removed in the same way once the last batch of their transaction is gone.

The last batch of every known producer is kept, without records if necessary: a replay of the log reads the producer's
epoch and sequence from it. Offsets, producer, epochs, codec and timestamp type of a batch never change; a batch that
loses no record is copied byte for byte.
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
    """The last batch of a producer in the log; NO_OFFSET if only a marker has its epoch."""

    offset: int
    epoch: int


class BatchCleaner:
    """Cleans the batches of one log, in their order."""

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
        # The offset after the last mapped one.
        self._mapped_up_to = mapped_up_to
        self._transactions = transactions
        self._producers = producers
        self._now_ms = now_ms
        horizon = now_ms + delete_retention_ms
        # None: too far in the future for a header, so nothing is removed.
        self._new_horizon = horizon if horizon <= _TIMESTAMP_MAX else None
        self.records_kept = 0

    def data(self, batch: RecordBatch) -> bytearray | memoryview | None:
        """Return what is kept of a data batch; None for nothing."""
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
        # Above the mapped offsets, older values are still there: a horizon would be too early.
        is_mapped = batch.last_offset < self._mapped_up_to
        horizon = None
        if is_mapped and not batch.has_delete_horizon and any(record.value is None for record in kept):
            horizon = self._new_horizon
        if horizon is None and len(kept) == batch.record_count:
            return batch.view
        return rewrite_batch(batch, kept, delete_horizon=horizon)

    def marker(self, batch: RecordBatch, *, is_spent: bool) -> bytearray | memoryview | None:
        """Return what is kept of a control batch; `is_spent` if its transaction has no batches left."""
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
        """Whether only this marker has the producer's epoch, which a replay needs."""
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
