"""The batches of one partition on their way to its leader: their order, how many are in flight, and their sequences.

No I/O and no clock: the sender calls in and reports results. Invariants:

  - Batches are sent in the order in which they were created, even after retries.
  - If a batch in flight has failed, nothing is sent until all batches in flight are back. Then the broker's log has a
    prefix of them, and the others are sent again in order.
  - With idempotence, sequences have no gap as long as every batch is written. A batch that is given up may leave a gap.
    The broker refuses the first batch after a gap and all that follow. None of them is in the log, so they can get new
    sequences without being written twice. That needs a new epoch, in which sequences start at 0 again.
  - A batch whose outcome is unknown keeps its sequence: the broker uses it to recognise a duplicate.
  - A broker that does not know a producer accepts any sequence. So until it has acknowledged a batch, only one is in
    flight: otherwise the broker could accept the second without the first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from ottla.client.producer.producer_batch import ProducerBatch
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE

EPOCH_MAX: Final = (1 << 15) - 1
_SEQUENCES: Final = 1 << 31


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """The producer id and epoch that the broker assigned."""

    producer_id: int
    producer_epoch: int


class BatchVerdict(Enum):
    """What a response means for a batch."""

    RETRY = auto()  # not written, or unknown: send it again with the same sequence
    GAP = auto()  # refused because of its sequence or epoch
    REFUSED = auto()  # not written, and never will be


class PartitionQueue:
    """The batches of one partition that are not done yet; `waiting[-1]` may still accept records."""

    def __init__(self, partition: TopicPartition, in_flight_max: int) -> None:
        self.partition = partition
        self.waiting: deque[ProducerBatch] = deque()
        # In the order in which they were sent, all on the same connection.
        self.in_flight: list[ProducerBatch] = []
        self.connection: object | None = None
        # The last of `waiting`, while it accepts records.
        self.open: ProducerBatch | None = None
        # No batch is sent before this time, after a failure.
        self.retry_at = 0.0
        self._in_flight_max = in_flight_max
        self._recovering = False
        self._gap = False
        self._orders = 0
        # None until it is first needed, and after its epochs are used up; `spent_id` is the id that must not be reused.
        self.identity: ProducerIdentity | None = None
        self.spent_id = NO_PRODUCER_ID
        self._next_sequence = 0
        # Whether a batch with a sequence of this identity was dropped without knowing whether it is in the log.
        self.is_in_doubt = False
        # Whether the broker has acknowledged a batch of this producer id.
        self._is_known = False

    def __repr__(self) -> str:
        return f"<PartitionQueue {self.partition} waiting={len(self.waiting)} in_flight={len(self.in_flight)}>"

    def next_order(self) -> int:
        """Return the position of a new batch in the order."""
        self._orders += 1
        return self._orders

    def adopt(self, identity: ProducerIdentity) -> None:
        """Send under this identity from now on, with sequences from 0; no batch may have a sequence yet."""
        assert not self._has_numbered()
        is_same = self.identity is not None and self.identity.producer_id == identity.producer_id
        self._is_known = self._is_known and is_same
        self.identity = identity
        self._next_sequence = 0
        self.is_in_doubt = False

    def can_send(self, connection: object, now: float) -> bool:
        """Whether the first batch may be sent on this connection."""
        if not self.waiting or now < self.retry_at:
            return False
        if not self.in_flight:
            return True
        in_flight_max = self._in_flight_max if self._is_known else 1
        return not self._recovering and len(self.in_flight) < in_flight_max and self.connection is connection

    def take(self, connection: object, idempotent: bool) -> ProducerBatch:
        """Move the first batch to those in flight, and give it a sequence if needed; only when `can_send`."""
        batch = self.waiting.popleft()
        if batch is self.open:
            self.open = None
        if idempotent and not batch.has_sequence:
            assert self.identity is not None
            batch.number(self.identity.producer_id, self.identity.producer_epoch, self._next_sequence)
            self._next_sequence = (self._next_sequence + batch.record_count) % _SEQUENCES
        self.in_flight.append(batch)
        self.connection = connection
        batch.attempts += 1
        return batch

    def written(self, batch: ProducerBatch) -> None:
        """Note that a batch is in the log."""
        self.in_flight.remove(batch)
        self._is_known = True
        self._settle()

    def failed(self, batch: ProducerBatch, verdict: BatchVerdict) -> None:
        """Note that a batch failed; if it is retried, it waits again in its place."""
        self.in_flight.remove(batch)
        if verdict is BatchVerdict.GAP and not self.has_earlier(batch):
            self._gap = True
        if verdict is BatchVerdict.REFUSED or batch.future.done():
            # A batch that was sent once and refused left no trace: if no later sequence was used, there is no gap. One
            # that was sent before may be in the log, and a batch that reuses its sequence would be taken for it.
            if (
                verdict is BatchVerdict.REFUSED
                and batch.attempts == 1
                and batch.has_sequence
                and not self._has_numbered()
            ):
                self._next_sequence = batch.base_sequence
            else:
                self._dropped(batch)
        else:
            place = sum(1 for other in self.waiting if other.rank < batch.rank)
            self.waiting.insert(place, batch)
            self._recovering = True
        self._settle()

    def split(self, batch: ProducerBatch, pieces: Sequence[ProducerBatch]) -> None:
        """Put the pieces of a batch that was refused as too large in its place.

        Together they have the sequences of the batch, so those of the batches behind it stay right.
        """
        self.in_flight.remove(batch)
        sequence = batch.base_sequence
        for piece in pieces:
            if batch.has_sequence:
                piece.number(batch.producer_id, batch.producer_epoch, sequence)
                sequence = (sequence + piece.record_count) % _SEQUENCES
        place = sum(1 for other in self.waiting if other.rank < batch.rank)
        self.waiting.rotate(-place)
        self.waiting.extendleft(reversed(pieces))
        self.waiting.rotate(place)
        self._recovering = True
        self._settle()

    def expired(self, now: float) -> Iterator[ProducerBatch]:
        """Give up batches that timed out; those in flight stay there until they are back."""
        while self.waiting and self.waiting[0].deadline <= now:
            yield self._drop_first()
        for batch in self.in_flight:
            if batch.deadline <= now and not batch.future.done():
                yield batch

    def drop_waiting(self) -> Iterator[ProducerBatch]:
        """Give up all batches that are not in flight."""
        while self.waiting:
            yield self._drop_first()

    def has_earlier(self, batch: ProducerBatch) -> bool:
        """Whether an earlier batch is not done, which can explain a gap before this one."""
        others = (*self.in_flight, *self.waiting)
        return any(other.rank < batch.rank for other in others)

    def _drop_first(self) -> ProducerBatch:
        batch = self.waiting.popleft()
        if batch is self.open:
            self.open = None
        self._dropped(batch)
        return batch

    def _dropped(self, batch: ProducerBatch) -> None:
        self.is_in_doubt = self.is_in_doubt or batch.has_sequence

    def _settle(self) -> None:
        if self.in_flight:
            return
        self.connection = None
        self._recovering = False
        if self._gap:
            self._gap = False
            self._begin_epoch()

    def _begin_epoch(self) -> None:
        """Start a new epoch: sequences start at 0 again, and waiting batches get new ones."""
        identity = self.identity
        if identity is not None:
            epoch = identity.producer_epoch + 1
            self.identity = ProducerIdentity(identity.producer_id, epoch) if epoch <= EPOCH_MAX else None
            self.spent_id = identity.producer_id
            self._is_known = self.identity is not None
        self._next_sequence = 0
        for batch in self.waiting:
            if not batch.has_sequence:
                break
            batch.number(NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE)

    def _has_numbered(self) -> bool:
        return bool(self.in_flight) or any(batch.has_sequence for batch in self.waiting)
