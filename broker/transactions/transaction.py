"""One transactional id at its coordinator: what each request may do in each state, without I/O and without a lock.

                       AddPartitions                EndTxn                   all markers written
    Empty ───────────────────────► Ongoing ───────────────► PrepareCommit ───────────────────► CompleteCommit
      ▲  ▲                         ▲  │  EndTxn, timeout,                                         │
      │  └── InitProducerId        │  └─────────────────────► PrepareAbort ──────────────────► CompleteAbort
      │                            │      InitProducerId                                          │
      └────── InitProducerId ──────┴──────────────── AddPartitions ◄───────────────────────────────┘

A change begins, is written to `__transaction_state`, and is done only when every in-sync replica has it. Until then
`pending` holds it, everybody else gets CONCURRENT_TRANSACTIONS, and nothing that anybody can see has changed. So the
memory never runs ahead of a write that fails. The caller has the lock of the id for each call, and writes without it.

A producer is fenced by its epoch. Epoch 32767 is never given to a producer: it is left for the last fence. A producer
whose epochs are used up gets another producer id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from enum import IntEnum
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

NO_START_MS: Final = -1
# The last epoch that a producer may have.
PRODUCER_EPOCH_MAX: Final = 32_766


class TransactionState(IntEnum):
    """The states, with their numbers in the log; DEAD is never written."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6

    @property
    def title(self) -> str:
        """The name in Kafka's tools."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def is_at_rest(self) -> bool:
        """Whether no transaction is open."""
        return self in _AT_REST

    @property
    def is_prepared(self) -> bool:
        """Whether the outcome is decided, and markers are on their way."""
        return self in _COMPLETE_OF


_AT_REST: Final = frozenset({TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})
_COMPLETE_OF: Final = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}


class StoredTransaction(Struct, frozen=True):
    """What the log has of a transactional id."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition]
    last_update_ms: int
    # When the first partition was added; it stays until the next transaction.
    start_ms: int = NO_START_MS


class Change(Struct, frozen=True):
    """A state that must be written before anybody hears of it. A tombstone has no target."""

    target: StoredTransaction | None
    # The producer before this change; a client that repeats its InitProducerId is known by it. Not written.
    previous_producer_id: int = NO_PRODUCER_ID
    previous_producer_epoch: int = NO_PRODUCER_EPOCH
    # The change takes the epoch from the producer, and aborts what it has begun.
    is_fence: bool = False


class Transaction(Struct):
    """A transactional id: what is written, what is being written, and which partitions still lack their marker."""

    transactional_id: str
    stored: StoredTransaction
    pending: Change | None = None
    previous_producer_id: int = NO_PRODUCER_ID
    previous_producer_epoch: int = NO_PRODUCER_EPOCH
    # The last fence could not be written. Its epoch is in memory already, so the next fence uses it again: otherwise
    # the epochs would run out while the log cannot be written.
    has_failed_fence: bool = False
    # The partitions of a prepared transaction whose marker is not written yet.
    unmarked: set[TopicPartition] = field(default_factory=set)

    @classmethod
    def new(cls, transactional_id: str, producer_id: int, now_ms: int) -> Transaction:
        """Make the entry of an id that the log does not have. Nothing is written before InitProducerId succeeds."""
        empty = StoredTransaction(producer_id, NO_PRODUCER_EPOCH, 0, TransactionState.EMPTY, frozenset(), now_ms)
        return cls(transactional_id, empty)

    @classmethod
    def loaded(cls, transactional_id: str, stored: StoredTransaction) -> Transaction:
        """Make the entry that the log has. A prepared transaction needs all its markers again."""
        unmarked = set(stored.partitions) if stored.state.is_prepared else set()
        return cls(transactional_id, stored, unmarked=unmarked)

    @property
    def state(self) -> TransactionState:
        """The state that is written."""
        return self.stored.state

    @property
    def is_busy(self) -> bool:
        """Whether a change is being written, or markers are on their way."""
        return self.pending is not None or self.state.is_prepared

    # Requests of the producer

    def init_producer(
        self,
        producer_id: int,
        producer_epoch: int,
        timeout_ms: int,
        now_ms: int,
        new_producer_id: Callable[[], int],
    ) -> Change:
        """Begin InitProducerId: another epoch, or the fence of a producer that has a transaction open.

        Without an id and epoch of its own (-1), the caller replaces whoever had the transactional id. With them it is
        the same producer, which goes on after an error. A fence is answered CONCURRENT_TRANSACTIONS when it is written.
        """
        self._check_idle()
        stored = self.stored
        is_same = producer_id != NO_PRODUCER_ID
        if is_same and not self._is_known(producer_id, producer_epoch):
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        if stored.state.is_prepared:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if stored.state is TransactionState.ONGOING:
            return self._begin(self._fence(now_ms))
        empty = replace(
            stored,
            timeout_ms=timeout_ms,
            state=TransactionState.EMPTY,
            partitions=frozenset(),
            last_update_ms=now_ms,
            start_ms=NO_START_MS,
        )
        is_current = stored.producer_epoch in (NO_PRODUCER_EPOCH, producer_epoch)
        if not is_same or is_current:
            previous_epoch = stored.producer_epoch if is_same else NO_PRODUCER_EPOCH
            if stored.producer_epoch >= PRODUCER_EPOCH_MAX:
                target = replace(empty, producer_id=new_producer_id(), producer_epoch=0)
            else:
                target = replace(empty, producer_epoch=stored.producer_epoch + 1)
        elif producer_epoch == self.previous_producer_epoch:
            # The answer to the same request was lost.
            previous_epoch, target = self.previous_producer_epoch, empty
        else:
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        previous_id = NO_PRODUCER_ID
        if is_same:
            has_other_id = target.producer_id != stored.producer_id
            previous_id = stored.producer_id if has_other_id else self.previous_producer_id
        return self._begin(Change(target, previous_id, previous_epoch))

    def add_partitions(
        self, producer_id: int, producer_epoch: int, partitions: Set[TopicPartition], now_ms: int
    ) -> Change | None:
        """Begin to add partitions to the transaction; None if it has them all."""
        self._check_producer(producer_id, producer_epoch)
        self._check_idle()
        stored = self.stored
        if stored.state.is_prepared:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        is_first = stored.state.is_at_rest
        if not is_first and partitions <= stored.partitions:
            return None
        target = replace(
            stored,
            state=TransactionState.ONGOING,
            partitions=stored.partitions | partitions,
            last_update_ms=now_ms,
            start_ms=now_ms if is_first else stored.start_ms,
        )
        return self._begin(Change(target, self.previous_producer_id, self.previous_producer_epoch))

    def verify(
        self, producer_id: int, producer_epoch: int, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Tell a broker which partitions the transaction has. A pending change does not matter: only the log counts."""
        self._check_producer(producer_id, producer_epoch)
        if self.state.is_prepared:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        has = self.stored.partitions
        return {each: ErrorCode.NONE if each in has else ErrorCode.TRANSACTION_ABORTABLE for each in partitions}

    def end(self, producer_id: int, producer_epoch: int, now_ms: int, *, commit: bool) -> Change | None:
        """Begin to commit or abort; None if that is done already, and the client only repeats its request."""
        self._check_producer(producer_id, producer_epoch)
        self._check_idle()
        stored = self.stored
        prepared = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
        if stored.state is TransactionState.ONGOING:
            target = replace(stored, state=prepared, last_update_ms=now_ms)
            return self._begin(Change(target, self.previous_producer_id, self.previous_producer_epoch))
        if stored.state is _COMPLETE_OF[prepared]:
            return None
        if stored.state is prepared:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"{self.transactional_id} cannot {'commit' if commit else 'abort'} in state {stored.state.title}",
        )

    # What the coordinator does by itself

    def time_out(self, now_ms: int) -> Change | None:
        """Begin to abort a transaction that is open for longer than its timeout; None if it is not."""
        stored = self.stored
        is_late = stored.start_ms + stored.timeout_ms < now_ms
        if self.pending is not None or stored.state is not TransactionState.ONGOING or not is_late:
            return None
        return self._begin(self._fence(now_ms))

    def marked(self, partition: TopicPartition) -> bool:
        """Note that a partition has its marker, or is gone; return whether the transaction can be completed."""
        self.unmarked.discard(partition)
        return not self.unmarked

    def complete(self, now_ms: int) -> Change:
        """Begin the end of a transaction whose markers are all written."""
        assert self.pending is None
        assert not self.unmarked
        target = replace(self.stored, state=_COMPLETE_OF[self.state], partitions=frozenset(), last_update_ms=now_ms)
        return self._begin(Change(target, self.previous_producer_id, self.previous_producer_epoch))

    def expire(self, now_ms: int, expiration_ms: int) -> Change | None:
        """Begin to forget an id that was not used for a long time; None if it was used, or has a transaction."""
        stored = self.stored
        is_old = now_ms - stored.last_update_ms >= expiration_ms
        if self.pending is not None or not stored.state.is_at_rest or not is_old:
            return None
        return self._begin(Change(None))

    # The end of a change

    def written(self) -> None:
        """Note that the pending change is on all in-sync replicas."""
        change = self._take_pending()
        if change.target is None:
            self.stored = replace(self.stored, state=TransactionState.DEAD)
            return
        was_prepared = self.state.is_prepared
        self.stored = change.target
        self.previous_producer_id = change.previous_producer_id
        self.previous_producer_epoch = change.previous_producer_epoch
        self.unmarked = set(change.target.partitions) if change.target.state.is_prepared else set()
        if was_prepared:
            self.has_failed_fence = False

    def failed(self) -> None:
        """Note that the pending change could not be written: everything is as before, but a fence keeps its epoch."""
        change = self._take_pending()
        if change.is_fence and change.target is not None:
            self.stored = replace(self.stored, producer_epoch=change.target.producer_epoch)
            self.has_failed_fence = True

    def _take_pending(self) -> Change:
        assert self.pending is not None
        change, self.pending = self.pending, None
        return change

    def _begin(self, change: Change) -> Change:
        self.pending = change
        return change

    def _fence(self, now_ms: int) -> Change:
        """Abort with the next epoch: the markers carry it, and fence the old one in the partitions."""
        stored = self.stored
        epoch = stored.producer_epoch + (not self.has_failed_fence)
        target = replace(stored, producer_epoch=epoch, state=TransactionState.PREPARE_ABORT, last_update_ms=now_ms)
        return Change(target, is_fence=True)

    # Checks

    def _is_known(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether the caller of InitProducerId is the present producer, or the one whose epochs were used up."""
        return (
            self.stored.producer_epoch == NO_PRODUCER_EPOCH
            or producer_id == self.stored.producer_id
            or (producer_id == self.previous_producer_id and producer_epoch >= PRODUCER_EPOCH_MAX)
        )

    def _check_idle(self) -> None:
        # One that is dead is about to be removed: the client tries again, and finds nothing or a new one.
        if self.pending is not None or self.state is TransactionState.DEAD:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)

    def _check_producer(self, producer_id: int, producer_epoch: int) -> None:
        if producer_id != self.stored.producer_id:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                f"{self.transactional_id} belongs to producer {self.stored.producer_id}, not {producer_id}",
            )
        if producer_epoch != self.stored.producer_epoch:
            raise KafkaError(
                ErrorCode.PRODUCER_FENCED,
                f"{self.transactional_id} is in epoch {self.stored.producer_epoch}, not {producer_epoch}",
            )
