"""The transaction coordinator: finds the entry of a transactional id, changes it under its lock, and writes the change.

A change is appended to `__transaction_state` after the entry's lock is released: it is pending, so nobody else can
change the entry meanwhile. Clients are answered, and markers are sent, when every in-sync replica has the change. The
leader epoch of the partition is the coordinator epoch. A coordinator that was replaced writes nothing, because its
appends fail, and what it still answers is NOT_COORDINATOR.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Set
from typing import Final, NamedTuple

import structlog

from ottla.broker.common.purgatory import DelayedOperation, Purgatory
from ottla.broker.coordination.appends import Append, Done
from ottla.broker.coordination.placement import TRANSACTION_STATE, partition_for
from ottla.broker.coordination.shards import Loaded, Shard, Shards
from ottla.broker.coordination.stored_records import StoredRecord
from ottla.broker.coordination.work import Work
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.partitions import Partitions
from ottla.broker.storage.log import Log
from ottla.broker.transactions.loading import load_transactions
from ottla.broker.transactions.records import transaction_key, transaction_value
from ottla.broker.transactions.transaction import Change, StoredTransaction, Transaction
from ottla.protocol.compression import Codec
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition

log = structlog.get_logger(__name__)

# What clients are told when a change cannot be written.
_WRITE_ERRORS: Final[Mapping[ErrorCode, ErrorCode]] = {
    ErrorCode.NONE: ErrorCode.NONE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
_RETRY_SECONDS: Final = 0.1


class CoordinatedTransaction:
    """A transactional id with its lock, and the shard that it belongs to."""

    __slots__ = ("lock", "shard", "transaction")

    def __init__(self, transaction: Transaction, shard: Shard[CoordinatedTransaction]) -> None:
        self.transaction = transaction
        self.shard = shard
        self.lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<CoordinatedTransaction {self.transaction.transactional_id} {self.transaction.state.title}>"


class TransactionLimits(NamedTuple):
    """How long transactions and transactional ids may live, and how often that is looked at."""

    timeout_max_ms: int = 15 * 60_000
    expiration_ms: int = 7 * 24 * 3_600_000
    abort_interval_ms: int = 10_000
    expire_interval_ms: int = 3_600_000
    load_buffer_bytes: int = 5 * 1024 * 1024


class InitializedProducer(NamedTuple):
    """The answer to InitProducerId."""

    error: ErrorCode
    producer_id: int = -1
    producer_epoch: int = -1


class TransactionCoordinator:
    """The transactional ids of the partitions of `__transaction_state` that this broker leads."""

    def __init__(
        self,
        limits: Callable[[], TransactionLimits],
        partitions: Partitions,
        partition_count: Callable[[], int | None],
        new_producer_id: Callable[[], int],
        clock: Callable[[], int],
        on_loaded: Callable[[], object] = lambda: None,
    ) -> None:
        """`partition_count` returns None while `__transaction_state` is unknown; `clock` milliseconds since 1970.

        `on_loaded` is called when the entries of a partition are loaded.
        """
        self._limits = limits
        self._partition_count = partition_count
        self._new_producer_id = new_producer_id
        self._clock = clock
        self._on_loaded = on_loaded
        self._is_stopping = False
        # Transactions that have all markers, and whose end is to be written once more; for metrics.
        self.unwritten_ends = 0
        self.work = Work("transactions")
        # Requests that wait until a transactional id is at rest, or its partition is loaded: by id, and by partition.
        self.delayed = Purgatory("transaction")
        self.shards: Shards[CoordinatedTransaction] = Shards(
            TRANSACTION_STATE,
            partitions,
            self.work,
            self._load,
            self._loaded,
            self._lost,
            self._send_all_markers,
        )
        # Called with an entry whose outcome is decided: sends its markers, and calls `marked` for each partition.
        self.send_markers: Callable[[CoordinatedTransaction], None] = lambda entry: None

    # Life cycle

    def start(self) -> None:
        """Start to load partitions, to abort what takes too long, and to forget what nobody uses."""
        self.work.start()
        self.delayed.start()
        self._schedule(self.abort_late, lambda limits: limits.abort_interval_ms)
        self._schedule(self.expire, lambda limits: limits.expire_interval_ms)

    def stop(self) -> None:
        """Refuse further requests with COORDINATOR_NOT_AVAILABLE."""
        self._is_stopping = True
        self.delayed.stop()
        self.work.stop()

    def role_changed(self, partition: Partition) -> None:
        """Load or give up the entries of a partition whose role has changed. Other topics are ignored."""
        self.shards.role_changed(partition)

    def _load(self, index: int, source: Log, is_wanted: Callable[[], bool]) -> Loaded[CoordinatedTransaction] | None:
        loaded = load_transactions(source, self._limits().load_buffer_bytes, is_wanted)
        shard = self.shards.get(index)
        if loaded is None or shard is None:
            return None
        entries = {
            transactional_id: CoordinatedTransaction(Transaction.loaded(transactional_id, stored), shard)
            for transactional_id, stored in loaded.entries.items()
        }
        return Loaded(entries, loaded.end_offset, loaded.record_count)

    def _loaded(self, shard: Shard[CoordinatedTransaction]) -> None:
        self._on_loaded()
        self.delayed.check(shard.index)
        self._send_all_markers(shard)

    def _lost(self, entry: CoordinatedTransaction) -> None:
        self.delayed.check(entry.transaction.transactional_id)

    def _send_all_markers(self, shard: Shard[CoordinatedTransaction]) -> None:
        for entry in list(shard.entries.values()):
            if entry.transaction.state.is_prepared:
                self.send_markers(entry)

    def _schedule(self, job: Callable[[], None], interval_ms: Callable[[TransactionLimits], int]) -> None:
        def run() -> None:
            job()
            self._schedule(job, interval_ms)

        self.work.submit(run, interval_ms(self._limits()) / 1000)

    # Finding

    def __iter__(self) -> Iterator[CoordinatedTransaction]:
        for shard in self.shards:
            yield from list(shard.entries.values())

    @property
    def is_loading(self) -> bool:
        """Whether any partition is being loaded."""
        return any(shard.is_loading for shard in self.shards)

    def is_busy(self, transactional_id: str) -> bool:
        """Whether a request would be told to try again soon: the id changes, gets its markers, or is being loaded."""
        shard = self._shard_at(transactional_id)
        if shard is None or self._is_stopping:
            return False
        entry = shard.entries.get(transactional_id)
        return shard.is_loading or (entry is not None and entry.transaction.is_busy)

    def await_rest(self, operation: DelayedOperation, transactional_id: str, timeout_seconds: float) -> None:
        """Let an operation wait until an id is not busy any more."""
        shard = self._shard_at(transactional_id)
        keys: list[Hashable] = [transactional_id] if shard is None else [transactional_id, shard.index]
        self.delayed.watch(operation, keys, timeout_seconds)

    def is_ready(self, transactional_id: str) -> bool:
        """Whether this broker coordinates an id, and has loaded its partition."""
        shard = self._shard_at(transactional_id)
        return shard is not None and not shard.is_loading

    def find(self, transactional_id: str) -> CoordinatedTransaction | None:
        """Return an entry, None if there is none; KafkaError if the id is empty, or its shard elsewhere or loading."""
        return self._shard_of(transactional_id).entries.get(transactional_id)

    def _shard_of(self, transactional_id: str) -> Shard[CoordinatedTransaction]:
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        if self._is_stopping:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        shard = self._shard_at(transactional_id)
        if shard is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if shard.is_loading:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return shard

    def _shard_at(self, transactional_id: str) -> Shard[CoordinatedTransaction] | None:
        count = self._partition_count()
        return None if count is None else self.shards.get(partition_for(transactional_id, count))

    def _known(self, transactional_id: str) -> CoordinatedTransaction:
        entry = self.find(transactional_id)
        if entry is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"there is no {transactional_id}")
        return entry

    def _known_or_new(self, transactional_id: str) -> CoordinatedTransaction:
        shard = self._shard_of(transactional_id)
        entry = shard.entries.get(transactional_id)
        if entry is None:
            # Outside the lock: a new block of producer ids comes from ZooKeeper.
            made = CoordinatedTransaction(
                Transaction.new(transactional_id, self._new_producer_id(), self._clock()), shard
            )
            with shard.lock:
                if not self._is_current(shard):
                    raise KafkaError(ErrorCode.NOT_COORDINATOR)
                entry = shard.entries.setdefault(transactional_id, made)
        return entry

    def coordinates(self, entry: CoordinatedTransaction, coordinator_epoch: int) -> bool:
        """Whether this broker still coordinates an entry, in that epoch."""
        return self._is_current(entry.shard) and entry.shard.epoch == coordinator_epoch

    def _is_current(self, shard: Shard[CoordinatedTransaction]) -> bool:
        return self.shards.get(shard.index) is shard

    # Requests

    def init_producer(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        timeout_ms: int,
        done: Callable[[InitializedProducer], None],
    ) -> None:
        """Give a producer its id and epoch, and fence whoever had the transactional id before."""
        try:
            if not 0 < timeout_ms <= self._limits().timeout_max_ms:
                raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
            entry = self._known_or_new(transactional_id)
            with entry.lock:
                change = entry.transaction.init_producer(
                    producer_id, producer_epoch, timeout_ms, self._clock(), self._new_producer_id
                )
        except KafkaError as error:
            done(InitializedProducer(error.code))
            return

        def written(error: ErrorCode) -> None:
            target = change.target
            assert target is not None
            if error is not ErrorCode.NONE:
                done(InitializedProducer(error))
            elif change.is_fence:
                # The client tries again until the old transaction is aborted.
                done(InitializedProducer(ErrorCode.CONCURRENT_TRANSACTIONS))
                self.send_markers(entry)
            else:
                done(InitializedProducer(error, target.producer_id, target.producer_epoch))

        self._write(entry, change, written)

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Set[TopicPartition],
        done: Done,
    ) -> None:
        """Add partitions to the transaction of a producer; the first ones begin it."""

        def change(transaction: Transaction) -> Change | None:
            return transaction.add_partitions(producer_id, producer_epoch, partitions, self._clock())

        self._change(transactional_id, change, done)

    def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Tell a broker which partitions the transaction of a producer has."""
        entry = self._known(transactional_id)
        with entry.lock:
            return entry.transaction.verify(producer_id, producer_epoch, partitions)

    def end(self, transactional_id: str, producer_id: int, producer_epoch: int, done: Done, *, commit: bool) -> None:
        """Decide the outcome of a transaction. The client is answered when the decision is written."""

        def change(transaction: Transaction) -> Change | None:
            return transaction.end(producer_id, producer_epoch, self._clock(), commit=commit)

        self._change(transactional_id, change, done, then=self.send_markers)

    # Markers

    def marked(
        self,
        entry: CoordinatedTransaction,
        coordinator_epoch: int,
        decided: StoredTransaction,
        partition: TopicPartition,
    ) -> None:
        """Note that a partition has its marker, or is gone. The last one completes the transaction.

        A late answer about an earlier transaction, or to an earlier coordinator epoch, changes nothing.
        """
        with entry.lock:
            transaction = entry.transaction
            is_meant = transaction.stored is decided and transaction.pending is None
            if not is_meant or not self.coordinates(entry, coordinator_epoch) or not transaction.marked(partition):
                return
            change = transaction.complete(self._clock())
        self._write_complete(entry, change)

    def _write_complete(self, entry: CoordinatedTransaction, change: Change) -> None:
        def written(error: ErrorCode) -> None:
            # Also where this broker may not be the coordinator any more: it may be in doubt only for a while. If
            # another one has taken over, that one finds the decision in the log, and sends the markers again.
            if error is not ErrorCode.NONE:
                self.unwritten_ends += 1
                self.work.submit(lambda: self._complete_again(entry), _RETRY_SECONDS)

        self._write(entry, change, written)

    def _complete_again(self, entry: CoordinatedTransaction) -> None:
        self.unwritten_ends -= 1
        with entry.lock:
            transaction = entry.transaction
            is_due = transaction.state.is_prepared and not transaction.unmarked and transaction.pending is None
            if not is_due or not self._is_current(entry.shard):
                return
            change = transaction.complete(self._clock())
        self._write_complete(entry, change)

    # Time

    def abort_late(self) -> None:
        """Abort the transactions that are open for longer than their producers allow."""
        for entry in self:
            with entry.lock:
                change = entry.transaction.time_out(self._clock())
            if change is not None:
                log.info("transaction_timed_out", transactional_id=entry.transaction.transactional_id)
                self._write(entry, change, self._then_markers(entry))

    def expire(self) -> None:
        """Forget the transactional ids that nobody has used for a long time."""
        expiration_ms = self._limits().expiration_ms
        for entry in self:
            with entry.lock:
                change = entry.transaction.expire(self._clock(), expiration_ms)
            if change is not None:
                self._write(entry, change, self._then_removed(entry))

    def _then_markers(self, entry: CoordinatedTransaction) -> Done:
        return lambda error: self.send_markers(entry) if error is ErrorCode.NONE else None

    def _then_removed(self, entry: CoordinatedTransaction) -> Done:
        def written(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                entry.shard.remove(entry.transaction.transactional_id, entry)

        return written

    # Writing

    def _change(
        self,
        transactional_id: str,
        begin: Callable[[Transaction], Change | None],
        done: Done,
        then: Callable[[CoordinatedTransaction], None] = lambda entry: None,
    ) -> None:
        """Begin a change, write it, and call `done`; if it is written, call `then`."""
        try:
            entry = self._known(transactional_id)
            with entry.lock:
                change = begin(entry.transaction)
        except KafkaError as error:
            done(error.code)
            return
        if change is None:
            done(ErrorCode.NONE)
            return

        def written(error: ErrorCode) -> None:
            done(error)
            if error is ErrorCode.NONE:
                then(entry)

        self._write(entry, change, written)

    def _write(self, entry: CoordinatedTransaction, change: Change, done: Done) -> None:
        """Write a pending change; call `done` when it is made, or has failed. The caller holds no lock."""
        shard, transaction = entry.shard, entry.transaction
        target = change.target
        record = StoredRecord(
            transaction_key(transaction.transactional_id), None if target is None else transaction_value(target)
        )

        def ended(error: ErrorCode) -> None:
            code = _WRITE_ERRORS.get(error, ErrorCode.UNKNOWN_SERVER_ERROR)
            # Another epoch may have begun meanwhile. If this broker has led without a break, what is written counts.
            if code is ErrorCode.NONE and not self._is_current(shard):
                code = ErrorCode.NOT_COORDINATOR
            with entry.lock:
                if code is ErrorCode.NONE:
                    transaction.written()
                else:
                    transaction.failed()
            done(code)
            self.delayed.check(transaction.transactional_id)

        if not self._is_current(shard):
            ended(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        timeout_ms = transaction.stored.timeout_ms if target is None else target.timeout_ms
        append = Append(self.shards.partition(shard.index), [record], self._clock(), Codec.NONE)
        append.then(timeout_ms, ended)
