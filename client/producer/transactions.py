"""The transactions of a producer: their state, what their coordinator is asked, and what errors mean for them.

    READY ──begin──► OPEN ──commit──► COMMITTING ──► READY
                      │                  │
                      │ a record or a    │ the same
                      │ request failed   │
                      ▼                  ▼
                  ABORTABLE ──abort──► ABORTING ──► READY            any ──► FATAL

An OPEN transaction may also be handed over (`prepare`): another process ends it, and this producer is done.

A partition is added to the transaction before the first batch for it is sent, together with all others that wait for
that. A commit waits for all batches. An abort gives them up, but waits for the answers to those in flight: a batch that
is written after the end of its transaction belongs to none. Both then tell the coordinator, unless the transaction has
neither partitions nor offsets. Both go on in the background if the caller stops waiting, and may be called again then.

Errors are of three kinds. Retriable ones are retried here, for up to max_block_ms or until records expire. Abortable
ones end the transaction: the caller has to abort it. Fatal ones end the producer. `abortable` and `fatal` of the error
tell the caller which it is, and calls raise it again until it is dealt with.

If a batch with a sequence was given up, it is not known which sequence its partition has in the log. The producer then
asks for a new epoch after the abort, in which sequences start at 0 again (KIP-360).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from copy import copy
from enum import Enum
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NoReturn

from ottla.client.errors import (
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    ProducerFencedError,
    TransactionAbortedError,
    error_for,
)
from ottla.client.net.backoff import Backoff
from ottla.client.net.cluster_client import ClusterClient
from ottla.client.net.coordinators import GROUP, LOST_COORDINATOR, TRANSACTION
from ottla.client.net.metadata import by_topic
from ottla.client.producer.numbering import GAPS
from ottla.client.producer.partition_queue import BatchVerdict, PartitionQueue, ProducerIdentity
from ottla.client.producer.prepared_transaction import PreparedTransaction
from ottla.client.producer.producer_batch import ProducerBatch
from ottla.client.producer.settings import ProducerSettings
from ottla.client.types import ConsumerGroupMetadata, OffsetAndMetadata
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.protocol.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

if TYPE_CHECKING:
    from ottla.client.producer.sender import Sender

# The newest versions that clients of Kafka 3.9 use. Later ones are for brokers, or end transactions by other rules.
_VERSIONS_MAX: Final = {
    Api.INIT_PRODUCER_ID: 5,
    Api.ADD_PARTITIONS_TO_TXN: 3,
    Api.ADD_OFFSETS_TO_TXN: 4,
    Api.TXN_OFFSET_COMMIT: 4,
    Api.END_TXN: 4,
}
# The first versions that take the producer's id and epoch, and that take the member of a group.
_EPOCH_VERSION: Final = 3
_MEMBER_VERSION: Final = 3
# The markers of the previous transaction are usually written within this time.
_RETRY_FIRST_MS: Final = 20

# After these errors a producer cannot go on. All other errors that are not retriable end its transaction only.
_FATAL: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)
# Coordinators know the state for certain, the leaders of partitions do not.
_FATAL_FROM_COORDINATOR: Final = _FATAL | {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE}
# The coordinator has forgotten the producer, and accepts nothing but InitProducerId.
_FORGOTTEN: Final = frozenset({ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.UNKNOWN_PRODUCER_ID})


class TransactionPhase(Enum):
    """What a transactional producer is doing."""

    UNINITIALIZED = "the producer has not started"
    READY = "there is no transaction: call begin_transaction() first, or use producer.transaction()"
    OPEN = "a transaction is open: commit or abort it first"
    COMMITTING = "the transaction is being committed: call commit_transaction() to wait for that"
    ABORTABLE = "the transaction has failed: call abort_transaction() first"
    ABORTING = "the transaction is being aborted: call abort_transaction() to wait for that"
    PREPARED = "the transaction was handed over: create a new producer"
    FATAL = "the producer has failed"


_SENDING: Final = frozenset({TransactionPhase.OPEN, TransactionPhase.COMMITTING})
_ABORTS: Final = frozenset({TransactionPhase.OPEN, TransactionPhase.ABORTABLE, TransactionPhase.ABORTING})


class Transactions:
    """The transactions of one producer, one after the other. Everything runs on the producer's event loop."""

    def __init__(self, cluster: ClusterClient, settings: ProducerSettings, sender: Sender) -> None:
        assert settings.transactional_id is not None
        self.transactional_id = settings.transactional_id
        self.state = TransactionPhase.UNINITIALIZED
        self._cluster = cluster
        self._settings = settings
        self._sender = sender
        self._identity = ProducerIdentity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        # Whether the next transaction needs another epoch.
        self._is_epoch_spent = False
        # Why the state is ABORTABLE or FATAL.
        self._failure: KafkaError | None = None
        # The commit or abort that is under way, or was last.
        self._ending: asyncio.Task[None] | None = None
        # The requests that add to the transaction; an end waits for them.
        self._adding: set[asyncio.Task[None]] = set()

        # Of the current transaction: what the coordinator has confirmed, and what waits for that.
        self._partitions: set[TopicPartition] = set()
        self._groups: set[str] = set()
        self._new_partitions: set[TopicPartition] = set()
        self._is_adding_partitions = False
        # Whether the coordinator was asked to begin it, which it may have done without our getting the answer.
        self._may_have_begun = False

    def __repr__(self) -> str:
        return f"<Transactions {self.transactional_id} {self.state.name} {self._identity}>"

    # For the producer.

    async def start(self) -> None:
        """Register with the coordinator: it aborts what an earlier producer of this id left open, and fences it."""
        try:
            await self._retrying(self._init_producer_id)
        except KafkaError as error:
            if error.code in _FATAL_FROM_COORDINATOR:
                raise _as_fatal(error) from error
            raise
        self.state = TransactionPhase.READY

    async def close(self) -> None:
        """Finish the commit or abort that is under way, and abort a transaction that is open."""
        if self._ending is not None:
            await asyncio.wait([self._ending])
        if self.state in (TransactionPhase.OPEN, TransactionPhase.ABORTABLE):
            self.state = TransactionPhase.ABORTING
            await asyncio.wait([self._start_ending(self._abort())])
        for task in self._adding:
            task.cancel()

    def begin(self) -> None:
        """Begin a transaction; the coordinator hears of it with the first partition or offset."""
        self._check(TransactionPhase.READY)
        self.state = TransactionPhase.OPEN

    def check_sending(self) -> None:
        """Raise an error unless records may be sent."""
        if self.state is not TransactionPhase.OPEN:
            self._refuse()

    async def commit(self) -> None:
        """Wait for all records, and commit; may be called again if the outcome is not known yet."""
        ending = self._ending
        if self.state is TransactionPhase.COMMITTING and ending is not None:
            if ending.done():
                ending = self._start_ending(self._commit())
        else:
            self._check(TransactionPhase.OPEN)
            self.state = TransactionPhase.COMMITTING
            ending = self._start_ending(self._commit())
        await asyncio.shield(ending)

    async def prepare(self) -> PreparedTransaction:
        """Wait for all records, and return what another process needs to end the transaction."""
        self._check(TransactionPhase.OPEN)
        self.state = TransactionPhase.COMMITTING
        try:
            await self._sender.flush()
            await self._added_all()
            self._raise_failure()
            if not self._may_have_begun:
                raise IllegalStateError("the transaction has no records to hand over")
        except BaseException:
            if self.state is TransactionPhase.COMMITTING:
                self.state = TransactionPhase.OPEN
            raise
        self.state = TransactionPhase.PREPARED
        identity = self._identity
        return PreparedTransaction(self.transactional_id, identity.producer_id, identity.producer_epoch)

    async def abort(self) -> None:
        """Give up all records, and abort."""
        ending = self._ending
        if self.state is not TransactionPhase.ABORTING or ending is None:
            if self.state is not TransactionPhase.ABORTABLE:
                self._check(TransactionPhase.OPEN)
            self.state = TransactionPhase.ABORTING
            ending = self._start_ending(self._abort())
        await asyncio.shield(ending)

    async def add_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None:
        """Commit the offsets of a group with the transaction."""
        self._check(TransactionPhase.OPEN)
        if not offsets:
            return
        await asyncio.shield(self._start_adding(self._add_offsets(offsets, group)))

    def fail(self, error: KafkaError) -> None:
        """End the transaction, if there is one: it can only be aborted."""
        if self.state in _SENDING:
            self._fail(error, TransactionPhase.ABORTABLE)

    # For the sender.

    def admits(self, queue: PartitionQueue) -> bool:
        """Whether the partition is part of the transaction; add it otherwise."""
        if self.state not in _SENDING:
            return False
        if queue.partition not in self._partitions:
            self._new_partitions.add(queue.partition)
            if not self._is_adding_partitions:
                self._is_adding_partitions = True
                self._start_adding(self._add_partitions())
            return False
        if queue.identity != self._identity:
            queue.adopt(self._identity)
        return True

    def verdict(self, queue: PartitionQueue, batch: ProducerBatch, error: KafkaError) -> BatchVerdict:
        """Retry what may be retried, and gaps that an earlier batch explains, which is retried itself."""
        if error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and queue.has_earlier(batch):
            return BatchVerdict.RETRY
        if error.code in GAPS:
            self._is_epoch_spent = True
        return BatchVerdict.RETRY if error.retriable else BatchVerdict.REFUSED

    def gave_up(self, error: KafkaError) -> None:
        """End the transaction: one of its batches is missing."""
        if error.code in _FATAL:
            error.fatal = True
            self._fail(error, TransactionPhase.FATAL)
        elif self.state in _SENDING:
            error.abortable = True
            self.fail(error)

    # Adding to a transaction.

    def _start_adding(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._adding.add(task)
        task.add_done_callback(self._adding.discard)
        task.add_done_callback(_look_at)
        return task

    async def _add_partitions(self) -> None:
        """Add all partitions that wait for it; if there are more afterwards, the sender asks again."""
        # The sender goes through its queues first, so that one request has the partitions of all of them.
        adding = frozenset(self._new_partitions)
        try:
            await self._retrying(partial(self._ask_to_add, adding), self._settings.delivery_timeout_ms)
        except KafkaError as error:
            self._refused(error)
        else:
            self._partitions |= adding
        finally:
            self._is_adding_partitions = False
            self._new_partitions -= adding
            self._sender.wake()

    async def _ask_to_add(self, partitions: Iterable[TopicPartition]) -> None:
        self._check_sending_goes_on()
        self._may_have_begun = True
        topics = [
            AddPartitionsToTxnTopic(name=name, partitions=numbers)
            for name, numbers in by_topic(sorted(partitions)).items()
        ]
        response = await self._ask(
            Api.ADD_PARTITIONS_TO_TXN,
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self._identity.producer_id,
                v3_and_below_producer_epoch=self._identity.producer_epoch,
                v3_and_below_topics=topics,
            ),
        )
        errors = [
            error_for(row.partition_error_code, f"{topic.name}-{row.partition_index} is not in the transaction")
            for topic in response.results_by_topic_v3_and_below
            for row in topic.results_by_partition
            if row.partition_error_code
        ]
        if errors:
            self._raise(min(errors, key=_urgency))

    async def _add_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None:
        try:
            if group.group_id not in self._groups:
                await self._retrying(partial(self._ask_to_add_group, group.group_id))
                self._groups.add(group.group_id)
            await self._retrying(partial(self._commit_offsets, offsets, group))
        except KafkaError as error:
            raise self._refused(error) from error

    async def _ask_to_add_group(self, group_id: str) -> None:
        self._check_sending_goes_on()
        self._may_have_begun = True
        response = await self._ask(
            Api.ADD_OFFSETS_TO_TXN,
            AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self._identity.producer_id,
                producer_epoch=self._identity.producer_epoch,
                group_id=group_id,
            ),
        )
        if response.error_code:
            self._raise(error_for(response.error_code, f"group {group_id} is not in the transaction"))

    async def _commit_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None:
        self._check_sending_goes_on()
        rows: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for (topic, number), given in offsets.items():
            row = TxnOffsetCommitRequestPartition(
                partition_index=number,
                committed_offset=given.offset,
                committed_leader_epoch=-1 if given.leader_epoch is None else given.leader_epoch,
                committed_metadata=given.metadata,
            )
            rows.setdefault(topic, []).append(row)
        has_member = group != ConsumerGroupMetadata(group.group_id)
        response = await self._ask(
            Api.TXN_OFFSET_COMMIT,
            TxnOffsetCommitRequest(
                transactional_id=self.transactional_id,
                group_id=group.group_id,
                producer_id=self._identity.producer_id,
                producer_epoch=self._identity.producer_epoch,
                generation_id=group.generation_id,
                member_id=group.member_id,
                group_instance_id=group.group_instance_id,
                topics=[TxnOffsetCommitRequestTopic(name=name, partitions=some) for name, some in rows.items()],
            ),
            group_id=group.group_id,
            version_min=_MEMBER_VERSION if has_member else 0,
        )
        errors = [
            error_for(
                row.error_code, f"group {group.group_id} did not take the offset of {topic.name}-{row.partition_index}"
            )
            for topic in response.topics
            for row in topic.partitions
            if row.error_code
        ]
        if errors:
            self._raise(min(errors, key=_urgency), group.group_id)

    # Ending a transaction.

    def _start_ending(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        self._ending = asyncio.create_task(work)
        self._ending.add_done_callback(_look_at)
        return self._ending

    async def _commit(self) -> None:
        await self._sender.flush()
        await self._added_all()
        self._raise_failure()
        try:
            await self._end(committed=True)
        except KafkaError as error:
            if error.retriable or error.code is ErrorCode.BROKER_NOT_AVAILABLE:
                raise KafkaTimeoutError(
                    f"it is not known whether the transaction of {self.transactional_id} is committed, because its "
                    f"coordinator had no answer within max_block_ms={self._settings.max_block_ms} ({error.message}): "
                    "call commit_transaction() again"
                ) from error
            raise self._refused(error) from error
        self._ended()

    async def _abort(self) -> None:
        self._sender.abandon(TransactionAbortedError("the transaction of this record was aborted"))
        await self._sender.wait_for_answers()
        await self._added_all()
        if self.state is TransactionPhase.FATAL:
            self._raise_failure()
        try:
            await self._end(committed=False)
            if self._is_epoch_spent or self._has_doubts():
                await self._retrying(self._init_producer_id)
        except KafkaError as error:
            # It may be tried again, unless the error is fatal.
            self._fail(error, TransactionPhase.ABORTABLE)
            raise self._refused(error) from error
        self._ended()

    async def _end(self, *, committed: bool) -> None:
        """Tell the coordinator, unless it has not heard of the transaction."""
        if self._may_have_begun:
            await self._retrying(partial(self._ask_to_end, committed=committed))
            self._may_have_begun = False

    async def _ask_to_end(self, *, committed: bool) -> None:
        response = await self._ask(
            Api.END_TXN,
            EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self._identity.producer_id,
                producer_epoch=self._identity.producer_epoch,
                committed=committed,
            ),
        )
        code = response.error_code
        if code in _FORGOTTEN and not committed:
            # There is nothing to abort; a new epoch is needed to go on.
            self._is_epoch_spent = True
        elif code == ErrorCode.INVALID_TXN_STATE and not (committed or self._partitions or self._groups):
            # The requests that would have begun the transaction had no effect.
            return
        elif code:
            what = "commit" if committed else "abort"
            self._raise(error_for(code, f"cannot {what} the transaction of {self.transactional_id}"))

    def _has_doubts(self) -> bool:
        """Whether a partition may have another sequence in its log than we would send next in this epoch."""
        queues = self._sender.accumulator.queues()
        return any(queue.is_in_doubt and queue.identity == self._identity for queue in queues)

    async def _added_all(self) -> None:
        if self._adding:
            await asyncio.wait(self._adding)

    def _ended(self) -> None:
        self._partitions.clear()
        self._groups.clear()
        self._new_partitions.clear()
        self._may_have_begun = False
        self._failure = None
        self.state = TransactionPhase.READY

    # Requests.

    async def _init_producer_id(self) -> None:
        """Get a producer id and an epoch; if there are some, the next epoch, which only their owner gets."""
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._settings.transaction_timeout_ms,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
        )
        is_new = self._identity.producer_id == NO_PRODUCER_ID
        response = await self._ask(Api.INIT_PRODUCER_ID, request, version_min=0 if is_new else _EPOCH_VERSION)
        if response.error_code:
            self._raise(error_for(response.error_code, f"no producer id for {self.transactional_id}"))
        self._identity = ProducerIdentity(response.producer_id, response.producer_epoch)
        self._is_epoch_spent = False

    async def _retrying(self, attempt: Callable[[], Awaitable[None]], timeout_ms: int | None = None) -> None:
        backoff = Backoff(min(_RETRY_FIRST_MS, self._settings.retry_backoff_ms), self._settings.retry_backoff_max_ms)
        limit_ms = self._settings.max_block_ms if timeout_ms is None else timeout_ms
        await self._cluster.retrying(attempt, limit_ms, backoff=backoff)

    async def _ask(self, api: Api, message: Any, *, group_id: str | None = None, version_min: int = 0) -> Any:
        """Send a request to the coordinator of the transaction, or of a group."""
        return await self._cluster.send_coordinator(
            self.transactional_id if group_id is None else group_id,
            api,
            message,
            key_type=TRANSACTION if group_id is None else GROUP,
            version_min=version_min,
            version_max=_VERSIONS_MAX[api],
        )

    def _raise(self, error: KafkaError, group_id: str | None = None) -> NoReturn:
        if error.code in LOST_COORDINATOR:
            if group_id is None:
                self._cluster.forget_coordinator(self.transactional_id, TRANSACTION)
            else:
                self._cluster.forget_coordinator(group_id)
        raise error

    # Failures.

    def _refused(self, error: KafkaError) -> KafkaError:
        """Apply what a coordinator's error means; return the error for the caller."""
        if error.code in _FATAL_FROM_COORDINATOR:
            error = _as_fatal(error)
            self._fail(error, TransactionPhase.FATAL)
            return error
        if error.code in _FORGOTTEN:
            self._is_epoch_spent = True
        self.fail(error)
        seen = copy(error)
        seen.abortable = True
        return seen

    def _fail(self, error: KafkaError, state: TransactionPhase) -> None:
        if self.state is TransactionPhase.FATAL:
            return
        self.state = state
        self._failure = copy(error)
        self._failure.fatal = state is TransactionPhase.FATAL
        self._failure.abortable = not self._failure.fatal
        # Not now: the sender may be in the middle of its queues.
        asyncio.get_running_loop().call_soon(self._abandon)

    def _abandon(self) -> None:
        """Fail all records: none of them will be committed."""
        if self._failure is not None and self.state in (TransactionPhase.ABORTABLE, TransactionPhase.FATAL):
            self._sender.abandon(copy(self._failure))

    def _check(self, wanted: TransactionPhase) -> None:
        if self.state is not wanted:
            self._refuse()

    def _refuse(self) -> NoReturn:
        self._raise_failure()
        raise IllegalStateError(self.state.value)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise copy(self._failure)

    def _check_sending_goes_on(self) -> None:
        """Stop to retry if the transaction has failed meanwhile."""
        if self.state not in _SENDING:
            self._refuse()


class TransactionContext:
    """A transaction as a block: committed at its end, and aborted if it raises."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def __aenter__(self) -> None:
        self._transactions.begin()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            await self._abort(error)
            return
        try:
            await self._transactions.commit()
        except KafkaError as failure:
            if failure.abortable:
                await self._abort(failure)
            raise

    async def _abort(self, reason: BaseException) -> None:
        """Abort, unless the block has ended the transaction; the reason is more important than a failure to abort."""
        if self._transactions.state not in _ABORTS:
            return
        try:
            await self._transactions.abort()
        except KafkaError as failure:
            if failure.fatal and isinstance(reason, KafkaError):
                raise failure from reason
            reason.add_note(f"The transaction could not be aborted: {failure}")


def _look_at(task: asyncio.Task[None]) -> None:
    """Take note of a task's error, which nobody may wait for any more: its effects are what counts."""
    _ = task.cancelled() or task.exception()


def _urgency(error: KafkaError) -> int:
    """Return which of several errors in a response counts: the lowest."""
    if error.code in _FATAL_FROM_COORDINATOR:
        return 0
    if error.code is ErrorCode.OPERATION_NOT_ATTEMPTED:
        return 3
    return 2 if error.retriable else 1


def _as_fatal(error: KafkaError) -> KafkaError:
    # Coordinators say this to older versions of requests.
    is_fenced = error.code is ErrorCode.INVALID_PRODUCER_EPOCH
    seen = ProducerFencedError(error.detail) if is_fenced else copy(error)
    seen.fatal = True
    return seen
