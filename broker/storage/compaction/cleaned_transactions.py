"""The transactions that compaction finds while it reads a log.

As long as a batch of a transaction is in the log, even an empty one, its marker must stay too. Otherwise a replay of
the log would find a transaction that never ended. A marker is spent if no batch of its transaction was found.

Aborted transactions are known beforehand, from the `.txnindex` of the segments in which their markers lie.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from ottla.broker.storage.producers.aborted_transactions import AbortedIndexEntry
from ottla.broker.storage.segment import Segment
from ottla.protocol.control_records import ControlType, read_marker
from ottla.protocol.records import RecordBatch


class CleanedTransactions:
    """The transactions that are open at the current batch. Batches must come in the order of the log."""

    def __init__(self) -> None:
        # A heap by first offset: transactions that begin at or above the current batch.
        self._coming: list[tuple[int, AbortedIndexEntry]] = []
        # By producer id: aborted transactions that have begun; and the producers with a batch in an open transaction.
        self._aborted: dict[int, AbortedIndexEntry] = {}
        self._met_aborted: set[int] = set()
        self._met_committed: set[int] = set()

    def expect(self, aborted: Iterable[AbortedIndexEntry]) -> None:
        """Add aborted transactions with data from here on; adding one twice is harmless."""
        for transaction in aborted:
            heappush(self._coming, (transaction.first_offset, transaction))

    def is_aborted(self, batch: RecordBatch) -> bool:
        """Note a batch of data; return whether it belongs to an aborted transaction."""
        if not batch.is_transactional:
            return False
        self._begin_up_to(batch.last_offset)
        transaction = self._aborted.get(batch.producer_id)
        # The offsets are compared because an entry whose marker is missing must not abort the producer's next
        # transaction.
        if transaction is not None and batch.base_offset < transaction.last_offset:
            self._met_aborted.add(batch.producer_id)
            return True
        self._met_committed.add(batch.producer_id)
        return False

    def end(self, batch: RecordBatch) -> tuple[bool, AbortedIndexEntry | None]:
        """Note a control batch; return whether it is spent, and the aborted transaction that must stay indexed."""
        self._begin_up_to(batch.last_offset)
        marker = read_marker(batch)
        if marker is None:
            # Emptied by an earlier compaction; or of a kind that must not be removed.
            return batch.record_count == 0, None
        producer_id = batch.producer_id
        if marker.control_type is ControlType.COMMIT:
            is_spent = producer_id not in self._met_committed
            self._met_committed.discard(producer_id)
            return is_spent, None
        transaction = self._aborted.pop(producer_id, None)
        was_met = producer_id in self._met_aborted
        self._met_aborted.discard(producer_id)
        return not was_met, transaction if was_met else None

    def _begin_up_to(self, offset: int) -> None:
        coming = self._coming
        while coming and coming[0][0] <= offset:
            transaction = heappop(coming)[1]
            known = self._aborted.get(transaction.producer_id)
            if known is None or known.last_offset < transaction.first_offset:
                self._aborted[transaction.producer_id] = transaction


def aborted_among(segments: Iterable[Segment], upper_offset: int) -> list[AbortedIndexEntry]:
    """Return the aborted transactions with data below `upper_offset` whose markers lie in `segments`.

    `segments` must reach to the end of the log: a marker may be far above the data. The search stops where no
    transaction that began below the upper offset can still be open. The caller holds the log's lock.
    """
    found = []
    for segment in segments:
        for transaction in segment.aborted_transactions if segment.has_aborted else ():
            if transaction.first_offset < upper_offset:
                found.append(transaction)
            if transaction.last_stable_offset >= upper_offset:
                return found
    return found
