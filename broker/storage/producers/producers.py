"""What a partition knows about its producers: sequences, to detect duplicates and gaps, and transactions.

Per producer id: the epoch, the last five batches (a producer has at most five in flight), the open transaction.
The leader calls `check` before an append and `update` after it; followers, and a replay of the log, only call `update`.
`check` changes nothing, so batches that build on each other must be appended one by one.

The last stable offset is the first offset whose transaction is still undecided:

    min(first offset of the earliest ongoing transaction,
        first offset of the earliest ended transaction whose marker is not below the high watermark,
        high watermark)

Ongoing transactions begin at rising offsets, so the earliest is the first that was inserted. Ended transactions are
dropped in the order of their markers, which also rise. If one transaction ends after another but began before it, the
other can never be the earliest again, so it is dropped at once. The rest rises in both first offset and marker.

Not thread-safe: the partition's lock protects it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final, NamedTuple

from ottla.broker.storage.producers.aborted_transactions import AbortedIndexEntry
from ottla.broker.storage.producers.producer_snapshot import StoredProducer, StoredProducers
from ottla.broker.storage.producers.verification import VerificationGuard, Verifications
from ottla.protocol.control_records import ControlType, EndTransactionMarker, read_marker
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import NO_OFFSET
from ottla.protocol.records import (
    CONTROL_BIT,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    RecordBatch,
)

BATCHES_MAX: Final = 5
SEQUENCE_MAX: Final = (1 << 31) - 1
NO_COORDINATOR_EPOCH: Final = -1
NO_CRC: Final = -1


class BatchMetadata(NamedTuple):
    """A batch in the log: the response to a producer that sends the same batch again."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int
    # Of the bytes in the log; unknown after a restart.
    crc: int = NO_CRC


class TransactionNumber(NamedTuple):
    """Which of the transactions that a coordinator has ended; a later one is greater."""

    # Of the coordinator's broker: higher after each start, whatever its clock says.
    broker_epoch: int
    # Counts from the start of the broker.
    number: int


# Coordinators of Kafka do not number transactions.
NO_TRANSACTION_NUMBER: Final = TransactionNumber(-1, -1)


class AppendOrigin(NamedTuple):
    """Where a batch of the leader comes from: what is checked depends on it."""

    # The broker's own coordinators send no sequences, so their sequences are not checked.
    is_client: bool = True
    # A batch that begins a transaction must come with the guard of its verification.
    must_be_verified: bool = False
    guard: VerificationGuard | None = None
    # Which one a marker ends.
    transaction_number: TransactionNumber = NO_TRANSACTION_NUMBER


FROM_CLIENT: Final = AppendOrigin()
FROM_COORDINATOR: Final = AppendOrigin(is_client=False)


class EndedTransaction(NamedTuple):
    """The last transaction that a numbered marker has ended."""

    number: TransactionNumber
    marker_offset: int


class KnownProducer:
    """One producer id in one partition."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "ended_transaction",
        "epoch",
        "last_timestamp",
        "next_sequence",
        "transaction_first_offset",
    )

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        # The batches of this epoch, oldest first, at most BATCHES_MAX.
        self.batches: list[BatchMetadata] = []
        # The first sequence of the next batch of this epoch; 0 while there are no batches.
        self.next_sequence = 0
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        # By the coordinator of this epoch. A leader knows it only of the markers that it has written itself.
        self.ended_transaction: EndedTransaction | None = None
        self.transaction_first_offset = NO_OFFSET
        self.last_timestamp = NO_TIMESTAMP

    def enter_epoch(self, epoch: int) -> None:
        """Forget the batches if the epoch is new."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()
            self.next_sequence = 0

    def append(self, batch: BatchMetadata) -> None:
        """Note a batch of the present epoch."""
        batches = self.batches
        batches.append(batch)
        if len(batches) > BATCHES_MAX:
            del batches[0]
        self.next_sequence = (batch.last_sequence + 1) & SEQUENCE_MAX
        self.last_timestamp = batch.timestamp


class Producers:
    """The producers of one partition."""

    __slots__ = ("_ongoing", "_states", "ended", "verifications")

    def __init__(self) -> None:
        self._states: dict[int, KnownProducer] = {}
        # Producer id by first offset. An OrderedDict finds its first key fast even after many deletions.
        self._ongoing: OrderedDict[int, int] = OrderedDict()
        # (first offset, marker offset), both rising; none of them known to be replicated.
        self.ended: deque[tuple[int, int]] = deque()
        self.verifications = Verifications()

    def __len__(self) -> int:
        return len(self._states)

    def __repr__(self) -> str:
        return f"Producers({len(self._states)} known, {len(self._ongoing)} in a transaction)"

    def has_open_transaction(self, producer_id: int) -> bool:
        """Whether the producer has an open transaction with data in this partition."""
        state = self._states.get(producer_id)
        return state is not None and state.transaction_first_offset != NO_OFFSET

    def has_transaction_before(self, time_ms: int) -> bool:
        """Whether an open transaction has got nothing since that time. Takes no lock: it is for metrics."""
        states = [self._states.get(producer_id) for producer_id in list(self._ongoing.values())]
        return any(state is not None and state.last_timestamp < time_ms for state in states)

    def begin_verification(
        self, batch: RecordBatch, now_ms: int, origin: AppendOrigin = FROM_CLIENT
    ) -> VerificationGuard | None:
        """Return the guard for a batch of a transaction; None if it needs none, because it does not begin one.

        A batch that the log has needs none, either.
        """
        if not self._begins_transaction(batch, origin):
            return None
        return self.verifications.begin(batch, now_ms)

    def check(self, batch: RecordBatch, origin: AppendOrigin = FROM_CLIENT) -> BatchMetadata | None:
        """Check a batch before it is appended; return the batch that it duplicates, or None.

        Raises KafkaError for a gap in the sequence, an old epoch or a wrong transaction.
        """
        state = self._states.get(batch.producer_id)
        attributes = batch.attributes
        if attributes & CONTROL_BIT:
            marker = read_marker(batch)
            if marker is not None:
                self.check_marker(batch.producer_id, batch.producer_epoch, marker)
                return _repeated_marker(state, marker, origin.transaction_number)
            return None
        if origin.must_be_verified and attributes & TRANSACTIONAL_BIT and self._begins_transaction(batch, origin):
            self.verifications.check(batch, origin.guard)
        if state is None:
            return None
        # A batch in sequence is no duplicate, since five batches do not span all sequences. This is the usual case.
        if batch.producer_epoch != state.epoch or (origin.is_client and batch.base_sequence != state.next_sequence):
            duplicate = _check_sequence(state, batch, from_client=origin.is_client)
            if duplicate is not None:
                return duplicate
        if state.transaction_first_offset != NO_OFFSET and not attributes & TRANSACTIONAL_BIT:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {batch.producer_id} sent a batch outside its transaction, "
                f"which is open since offset {state.transaction_first_offset}",
            )
        return None

    def _begins_transaction(self, batch: RecordBatch, origin: AppendOrigin) -> bool:
        """Whether a batch of a transaction is the first one here. One that the log has is not."""
        state = self._states.get(batch.producer_id)
        if state is None or batch.producer_epoch != state.epoch:
            return True
        is_repeated = origin.is_client and _duplicate(state, batch) is not None
        return state.transaction_first_offset == NO_OFFSET and not is_repeated

    def check_marker(self, producer_id: int, producer_epoch: int, marker: EndTransactionMarker) -> None:
        """Raise KafkaError unless the marker comes from the present coordinator for the present producer."""
        state = self._states.get(producer_id)
        if state is None:
            return
        if producer_epoch < state.epoch:
            raise _old_epoch(producer_id, producer_epoch, state.epoch)
        if marker.coordinator_epoch < state.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"coordinator epoch {marker.coordinator_epoch} for producer {producer_id} is older than "
                f"{state.coordinator_epoch}",
            )

    def update(self, batch: RecordBatch, base_offset: int) -> AbortedIndexEntry | None:
        """Note a batch that was appended at `base_offset`.

        Returns the transaction that the batch aborted, for the index of the segment that the batch is in.
        """
        producer_id = batch.producer_id
        if producer_id < 0:
            return None
        attributes = batch.attributes
        if attributes & CONTROL_BIT:
            marker = read_marker(batch)
            if marker is None:
                return None
            return self.complete(producer_id, batch.producer_epoch, marker, base_offset, batch.max_timestamp)
        state = self._states.get(producer_id)
        if state is None:
            state = self._states[producer_id] = KnownProducer(batch.producer_epoch)
        elif state.epoch != batch.producer_epoch:
            state.enter_epoch(batch.producer_epoch)
        last_offset = base_offset + batch.last_offset_delta
        state.append(
            BatchMetadata(
                batch.base_sequence, batch.last_sequence, base_offset, last_offset, batch.max_timestamp, batch.crc
            )
        )
        if attributes & TRANSACTIONAL_BIT:
            self.verifications.end(producer_id)
            if state.transaction_first_offset == NO_OFFSET:
                state.transaction_first_offset = base_offset
                self._ongoing[base_offset] = producer_id
        return None

    def complete(
        self,
        producer_id: int,
        producer_epoch: int,
        marker: EndTransactionMarker,
        marker_offset: int,
        timestamp: int,
    ) -> AbortedIndexEntry | None:
        """Note a marker that was appended; returns the transaction if it had data and is aborted."""
        self.verifications.end(producer_id)
        state = self._states.get(producer_id)
        if state is None:
            state = self._states[producer_id] = KnownProducer(producer_epoch)
        state.enter_epoch(producer_epoch)
        state.coordinator_epoch = marker.coordinator_epoch
        state.ended_transaction = None
        state.last_timestamp = timestamp
        first_offset = state.transaction_first_offset
        if first_offset == NO_OFFSET:
            return None
        state.transaction_first_offset = NO_OFFSET
        del self._ongoing[first_offset]
        ended = self.ended
        while ended and ended[-1][0] > first_offset:
            ended.pop()
        ended.append((first_offset, marker_offset))
        if marker.control_type is ControlType.COMMIT:
            return None
        last_stable_offset = next(iter(self._ongoing), marker_offset + 1)
        return AbortedIndexEntry(producer_id, first_offset, marker_offset, last_stable_offset)

    def number_marker(self, producer_id: int, transaction_number: TransactionNumber, marker_offset: int) -> None:
        """Note which transaction the last marker of a producer has ended."""
        self._states[producer_id].ended_transaction = EndedTransaction(transaction_number, marker_offset)

    def on_high_watermark(self, high_watermark: int) -> None:
        """Drop the ended transactions whose marker is replicated."""
        ended = self.ended
        while ended and ended[0][1] < high_watermark:
            ended.popleft()

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return how far a read_committed consumer may read; it may lie below a log start that has advanced."""
        stable = min(high_watermark, next(iter(self._ongoing), high_watermark))
        for first_offset, marker_offset in self.ended:
            if marker_offset >= high_watermark:
                return min(stable, first_offset)
        return stable

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget the producers that wrote nothing for `expiration_ms` and have no open transaction; return how many."""
        expired = [
            producer_id
            for producer_id, state in self._states.items()
            if now_ms - state.last_timestamp >= expiration_ms and state.transaction_first_offset == NO_OFFSET
        ]
        for producer_id in expired:
            del self._states[producer_id]
        self.verifications.expire(now_ms, expiration_ms)
        return len(expired)

    def entries(self) -> list[StoredProducer]:
        """Return every producer as a snapshot keeps it, and as DescribeProducers shows it."""
        return [_entry_of(producer_id, state) for producer_id, state in self._states.items()]

    def reset(self) -> None:
        """Forget everything; the log is empty."""
        self._states.clear()
        self._ongoing.clear()
        self.ended.clear()
        self.verifications.reset()

    def restore(self, snapshot: StoredProducers) -> None:
        """Restore a snapshot; the caller then replays the batches from its offset on.

        A snapshot has no ended transactions. Known ones whose marker is below it are still right, and are kept.
        """
        self._states = {entry.producer_id: _state_of(entry) for entry in snapshot.entries}
        self._ongoing = OrderedDict(
            sorted(
                (entry.current_transaction_first_offset, entry.producer_id)
                for entry in snapshot.entries
                if entry.current_transaction_first_offset != NO_OFFSET
            )
        )
        while self.ended and self.ended[-1][1] >= snapshot.offset:
            self.ended.pop()


def _check_sequence(state: KnownProducer, batch: RecordBatch, *, from_client: bool) -> BatchMetadata | None:
    """Check a batch that is not the next one of the known epoch; return the batch that it duplicates, or None."""
    producer_id, epoch, first_sequence = batch.producer_id, batch.producer_epoch, batch.base_sequence
    if epoch == state.epoch:
        known = _duplicate(state, batch)
        if known is not None:
            return known
        expected = state.next_sequence
    elif epoch < state.epoch:
        raise _old_epoch(producer_id, epoch, state.epoch)
    else:
        expected = 0
    if from_client and first_sequence != expected:
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"expected sequence {expected}, got {first_sequence} from producer {producer_id} epoch {epoch}",
        )
    return None


def _duplicate(state: KnownProducer, batch: RecordBatch) -> BatchMetadata | None:
    """Return the batch that a batch of the known epoch repeats; None if it is another one."""
    first_sequence, last_sequence = batch.base_sequence, batch.last_sequence
    for known in state.batches:
        if known.first_sequence == first_sequence and known.last_sequence == last_sequence:
            return None if _is_of_another_transaction(state, batch, known) else known
    return None


def _is_of_another_transaction(state: KnownProducer, batch: RecordBatch, known: BatchMetadata) -> bool:
    """Whether a batch only has the sequences of one from an ended transaction: its bytes are others.

    librdkafka purges batches that it was to send again, although they may have been written, and uses their sequences
    again in its next transaction. Kafka takes the second one for the first, and acknowledges what it does not write.
    """
    attributes = batch.attributes
    # With the time of the broker in it, the same batch has other bytes each time.
    if not attributes & TRANSACTIONAL_BIT or attributes & TIMESTAMP_TYPE_BIT:
        return False
    first_offset = state.transaction_first_offset
    is_of_this_one = first_offset != NO_OFFSET and known.base_offset >= first_offset
    return not is_of_this_one and known.crc not in (NO_CRC, batch.crc)


def _repeated_marker(
    state: KnownProducer | None, marker: EndTransactionMarker, transaction_number: TransactionNumber
) -> BatchMetadata | None:
    """Return where the marker of this transaction, or of a later one, is; None if this one is not known to be late.

    A coordinator that gets no answer sends its marker again. If the first one is only late, it must not end the
    producer's next transaction.
    """
    ended = None if state is None else state.ended_transaction
    if state is None or ended is None or marker.coordinator_epoch != state.coordinator_epoch:
        return None
    if transaction_number == NO_TRANSACTION_NUMBER or transaction_number > ended.number:
        return None
    return BatchMetadata(NO_SEQUENCE, NO_SEQUENCE, ended.marker_offset, ended.marker_offset, state.last_timestamp)


def _old_epoch(producer_id: int, epoch: int, known_epoch: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH, f"epoch {epoch} of producer {producer_id} is older than {known_epoch}"
    )


def _entry_of(producer_id: int, state: KnownProducer) -> StoredProducer:
    if state.batches:
        last = state.batches[-1]
        last_sequence, last_offset, offset_delta = (
            last.last_sequence,
            last.last_offset,
            last.last_offset - last.base_offset,
        )
    else:
        last_sequence, last_offset, offset_delta = NO_SEQUENCE, NO_OFFSET, 0
    return StoredProducer(
        producer_id,
        state.epoch,
        last_sequence,
        last_offset,
        offset_delta,
        state.last_timestamp,
        state.coordinator_epoch,
        state.transaction_first_offset,
    )


def _state_of(entry: StoredProducer) -> KnownProducer:
    state = KnownProducer(entry.epoch)
    if entry.last_offset != NO_OFFSET:
        first_sequence = entry.last_sequence
        if first_sequence != NO_SEQUENCE:
            first_sequence = (entry.last_sequence - entry.offset_delta) & SEQUENCE_MAX
        base_offset = entry.last_offset - entry.offset_delta
        state.append(
            BatchMetadata(first_sequence, entry.last_sequence, base_offset, entry.last_offset, entry.last_timestamp)
        )
    state.last_timestamp = entry.last_timestamp
    state.coordinator_epoch = entry.coordinator_epoch
    state.transaction_first_offset = entry.current_transaction_first_offset
    return state
