"""Synchronous twins of Producer, Consumer and Admin: the same names and arguments, in calls that block.

    from ottla.sync import Consumer, Producer

    with Producer(bootstrap_servers="localhost:9092") as producer:
        metadata = producer.send("topic", b"value").result()

A twin holds its asynchronous client and has each call run on an event loop in the background, which all twins share.
It may be used from any thread. A call waits as long as the client's own settings allow; `call_timeout_ms` sets a limit
for every call of a twin, after which it is cancelled with KafkaTimeoutError.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import inspect
import logging
from collections.abc import Callable, Collection, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, Self, TypeVar, Unpack

from ottla.client.admin import admin
from ottla.client.consumer import consumer
from ottla.client.consumer.assigned_partitions import LentRecords
from ottla.client.consumer.rebalance_listener import ConsumerRebalanceListener
from ottla.client.consumer.settings import ConsumerOptions, ConsumerSettings
from ottla.client.errors import IllegalStateError, KafkaError, KafkaTimeoutError
from ottla.client.net.settings import ClientOptions, ClientSettings, Config
from ottla.client.producer import producer
from ottla.client.producer.prepared_transaction import PreparedTransaction
from ottla.client.producer.producer_batch import BatchBuilder, Delivery
from ottla.client.producer.settings import ProducerOptions, ProducerSettings
from ottla.client.sync.loop_thread import LoopThread
from ottla.client.sync.send_queue import Sending, SendQueue
from ottla.client.types import ConsumerRecord, RecordMetadata, TopicPartition
from ottla.protocol.record_batch_builder import HeadersToWrite

__all__ = ["Admin", "Consumer", "Producer"]

# Not below `ottla.client`, which is silent by default: a program that loses records should say so.
lost_records_log = logging.getLogger("ottla.lost_records")

# How long the end of a program waits for records of producers that were not closed.
EXIT_TIMEOUT_MS: int = 10_000


class _Client(Protocol):
    """What all asynchronous clients have."""

    async def start(self) -> None: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


Client = TypeVar("Client", bound=_Client)
Owner = TypeVar("Owner")
NOT_RUNNING: Final = "the client does not run: use it in `with`, or call start() before"
P = ParamSpec("P")
R = TypeVar("R")


class _Twin(Generic[Client]):
    """What the twins have in common: a client, and the loop that it runs on between start and stop."""

    def __init__(self, client: Client, call_timeout_ms: int | None) -> None:
        self._client: Client = client
        self._call_timeout_ms = call_timeout_ms
        # There from start until the client is closed, which others may still use it for.
        self._loop: LoopThread | None = None
        self._ended = False

    def __repr__(self) -> str:
        return f"<sync {self._client!r}>"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(self._client.__aexit__(kind, error, trace))

    def start(self) -> None:
        """Reach the cluster; NoBrokersAvailable if nobody answers."""
        if self._loop is not None or self._ended:
            raise IllegalStateError("the client was started before; make another")
        self._loop = LoopThread.acquire()
        try:
            self._wait(self._client.start())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Finish what is under way, as the asynchronous client does, and close."""
        self._end(self._client.__aexit__(None, None, None))

    def _end(self, work: Coroutine[Any, Any, None]) -> None:
        loop = self._loop
        if loop is None or self._ended:
            work.close()
            return
        self._ended = True
        try:
            loop.call(work, self._call_timeout_ms)
        finally:
            self._loop = None
            loop.release()

    def _wait(self, work: Coroutine[Any, Any, R]) -> R:
        loop = self._loop
        if loop is None:
            work.close()
            raise IllegalStateError(NOT_RUNNING)
        return loop.call(work, self._call_timeout_ms)


def _blocking(
    method: Callable[Concatenate[Owner, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[_Twin[Any], P], R]:
    """Return a coroutine method as one that waits for its result."""

    @functools.wraps(method)
    def call(self: _Twin[Any], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._wait(method(self._client, *args, **kwargs))

    return call


def _on_loop(method: Callable[Concatenate[Owner, P], R]) -> Callable[Concatenate[_Twin[Any], P], R]:
    """Return a plain method as one that runs on the loop, where the state that it looks at or changes belongs."""

    async def run(client: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return method(client, *args, **kwargs)

    return functools.wraps(method)(_blocking(run))


class Producer(_Twin[producer.Producer]):
    """Writes records to topics; options are those of `ottla.Producer`."""

    def __init__(self, *, call_timeout_ms: int | None = None, **options: Unpack[ProducerOptions]) -> None:
        super().__init__(producer.Producer(**options), call_timeout_ms)
        # Set between start and stop.
        self._queue: SendQueue | None = None

    @classmethod
    def from_config(
        cls, config: Config, *, call_timeout_ms: int | None = None, **overrides: Unpack[ProducerOptions]
    ) -> Self:
        """Take options with dotted names, from a mapping or a .properties file."""
        return cls(call_timeout_ms=call_timeout_ms, **ProducerSettings.kwargs_from_config(config, overrides))

    def start(self) -> None:
        """Reach the cluster; NoBrokersAvailable if nobody answers."""
        super().start()
        assert self._loop is not None
        self._queue = SendQueue(self._loop)
        _running_producers.add(self)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Send waiting records, for up to delivery_timeout_ms, and close; a transaction that is open is aborted."""
        _running_producers.discard(self)
        self._end(self._drained(self._client.stop))

    stop = close

    @property
    def unwritten(self) -> int:
        """The number of records that were sent, and are neither written nor failed yet."""
        return self._client.unwritten + (0 if self._queue is None else len(self._queue))

    @property
    def settings(self) -> ProducerSettings:
        """All options, with their values."""
        return self._client.settings

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersToWrite | None = None,
    ) -> Future[RecordMetadata]:
        """Return a future of the record's metadata, or of any error about it; waits only while there is no room."""
        return self._put(partial(self._client.send, topic, value, key, partition, timestamp_ms, headers))

    def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersToWrite | None = None,
    ) -> RecordMetadata:
        """Send a record and wait until it is written."""
        return self._result(self.send(topic, value, key, partition, timestamp_ms, headers))

    def send_batch(self, batch: BatchBuilder, topic: str, *, partition: int) -> Future[RecordMetadata]:
        """Send a batch; the future gives the metadata of its first record."""
        return self._put(partial(self._client.send_batch, batch, topic, partition=partition))

    def create_batch(self) -> BatchBuilder:
        """Return an empty batch to fill by hand, for `send_batch`."""
        return self._client.create_batch()

    def flush(self) -> None:
        """Send all waiting records now, and wait until they are written or have failed."""
        self._wait(self._drained(self._client.flush))

    partitions_for = _blocking(producer.Producer.partitions_for)
    metrics = _on_loop(producer.Producer.metrics)

    def begin_transaction(self) -> None:
        """Begin a transaction: records sent until it ends become visible together, or not at all."""
        self._wait(self._drained(self._client.begin_transaction))

    def commit_transaction(self) -> None:
        """Wait until all records of the transaction are written, and commit it.

        If that raises an error which is `abortable`, abort the transaction: also if a record could not be sent, which
        its future tells. After a KafkaTimeoutError which is not, the outcome is unknown: call this again.
        """
        self._wait(self._drained(self._client.commit_transaction))

    def abort_transaction(self) -> None:
        """Abort the transaction: its records are given up, and readers of committed records never see them."""
        self._wait(self._drained(self._client.abort_transaction))

    def prepare_transaction(self) -> PreparedTransaction:
        """Wait until all records of the transaction are written, and hand it over to another process to be ended."""
        return self._wait(self._drained(self._client.prepare_transaction))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Return a transaction for `with`: committed at the end of the block, and aborted if it raises."""
        context = self._client.transaction()
        self._wait(self._drained(context.__aenter__))
        try:
            yield
        except BaseException as error:
            self._wait(self._drained(partial(context.__aexit__, type(error), error, error.__traceback__)))
            raise
        self._wait(self._drained(partial(context.__aexit__, None, None, None)))

    send_offsets_to_transaction = _blocking(producer.Producer.send_offsets_to_transaction)

    def _put(self, send: Callable[[], Sending]) -> Future[RecordMetadata]:
        queue = self._queue
        if queue is None:
            raise IllegalStateError(NOT_RUNNING)
        sending = send() if self.settings.transactional_id is None else self._in_transaction(send)
        return queue.put(sending, self._call_timeout_ms)

    async def _in_transaction(self, send: Callable[[], Sending]) -> Delivery:
        """Fail the transaction with a record that cannot be sent: the caller may never look at its future."""
        try:
            return await send()
        except Exception as error:
            failure = error if isinstance(error, KafkaError) else KafkaError(f"a record could not be sent: {error!r}")
            assert self._client._transactions is not None
            self._client._transactions.fail(failure)
            raise

    def _result(self, future: Future[RecordMetadata]) -> RecordMetadata:
        try:
            return future.result(None if self._call_timeout_ms is None else self._call_timeout_ms / 1000)
        except TimeoutError:
            if future.done():
                raise
            raise KafkaTimeoutError(f"the record was not written within {self._call_timeout_ms} ms") from None

    async def _drained(self, then: Callable[[], Coroutine[Any, Any, R]]) -> R:
        if self._queue is not None:
            await self._queue.drain()
        return await then()


# Producers that were started and not closed.
_running_producers: Final[set[Producer]] = set()


@atexit.register
def _close_producers() -> None:
    """Write what is left, as far as that is possible within EXIT_TIMEOUT_MS, and say what was lost."""
    for each in list(_running_producers):
        each._call_timeout_ms = EXIT_TIMEOUT_MS
        left = each.unwritten
        try:
            if each.settings.transactional_id is None:
                each.flush()
                left = each.unwritten
            each.close()
        except KafkaTimeoutError:
            left = each.unwritten
        except IllegalStateError:
            # The thread of the loop did not survive a fork: the records belong to the parent process.
            continue
        if left:
            lost_records_log.warning(
                "%d record(s) were not written when the program ended: call close() or flush() before, or use the "
                "producer in `with`",
                left,
            )


class Consumer(_Twin[consumer.Consumer]):
    """Reads records; options are those of `ottla.Consumer`.

    Iteration waits for the next record, and ends when there was none for `consumer_timeout_ms`, if that is given, or
    when another thread stops the consumer. Records that are there are taken without a call to the loop's thread for
    each; positions and commits cover those alone that were handed out.
    """

    def __init__(
        self,
        *topics: str,
        consumer_timeout_ms: int | None = None,
        call_timeout_ms: int | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        super().__init__(consumer.Consumer(*topics, **options), call_timeout_ms)
        self._consumer_timeout_ms = consumer_timeout_ms
        # Records that an iteration takes on this side, instead of going to the loop's thread for each.
        self._lent: LentRecords | None = None

    @classmethod
    def from_config(
        cls,
        config: Config,
        *topics: str,
        consumer_timeout_ms: int | None = None,
        call_timeout_ms: int | None = None,
        **overrides: Unpack[ConsumerOptions],
    ) -> Self:
        """Take options with dotted names, from a mapping or a .properties file."""
        return cls(
            *topics,
            consumer_timeout_ms=consumer_timeout_ms,
            call_timeout_ms=call_timeout_ms,
            **ConsumerSettings.kwargs_from_config(config, overrides),
        )

    @property
    def settings(self) -> ConsumerSettings:
        """All options, with their values."""
        return self._client.settings

    def subscribe(
        self,
        topics: Collection[str] = (),
        pattern: str | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Share topics with the group; the listener is called on a thread of its own, and may call the consumer."""
        self._subscribe(topics, pattern, None if listener is None else _ThreadedListener(listener))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ConsumerRecord[Any, Any]:
        lent = self._lent
        if lent is not None and (record := lent.take()) is not None:
            return record
        try:
            record, self._lent = self._wait(self._borrow())
        except IllegalStateError:
            if self._ended:
                raise StopIteration from None
            raise
        if record is None:
            raise StopIteration
        return record

    async def _borrow(self) -> tuple[ConsumerRecord[Any, Any] | None, LentRecords | None]:
        self._client._check_running()
        return await self._client._reader.lent(self._consumer_timeout_ms)

    _subscribe = _on_loop(consumer.Consumer.subscribe)
    unsubscribe = _blocking(consumer.Consumer.unsubscribe)
    assign = _on_loop(consumer.Consumer.assign)
    subscription = _on_loop(consumer.Consumer.subscription)
    assignment = _on_loop(consumer.Consumer.assignment)
    topics = _blocking(consumer.Consumer.topics)
    partitions_for_topic = _blocking(consumer.Consumer.partitions_for_topic)
    getone = _blocking(consumer.Consumer.getone)
    getmany = _blocking(consumer.Consumer.getmany)
    poll = getmany
    getbatches = _blocking(consumer.Consumer.getbatches)
    getcolumns = _blocking(consumer.Consumer.getcolumns)
    pause = _on_loop(consumer.Consumer.pause)
    resume = _on_loop(consumer.Consumer.resume)
    paused = _on_loop(consumer.Consumer.paused)
    seek = _on_loop(consumer.Consumer.seek)
    seek_to_beginning = _blocking(consumer.Consumer.seek_to_beginning)
    seek_to_end = _blocking(consumer.Consumer.seek_to_end)
    seek_to_committed = _blocking(consumer.Consumer.seek_to_committed)
    position = _blocking(consumer.Consumer.position)
    highwater = _on_loop(consumer.Consumer.highwater)
    last_stable_offset = _on_loop(consumer.Consumer.last_stable_offset)
    beginning_offsets = _blocking(consumer.Consumer.beginning_offsets)
    end_offsets = _blocking(consumer.Consumer.end_offsets)
    offsets_for_times = _blocking(consumer.Consumer.offsets_for_times)
    commit = _blocking(consumer.Consumer.commit)
    committed = _blocking(consumer.Consumer.committed)
    committed_offsets = _blocking(consumer.Consumer.committed_offsets)
    group_metadata = _on_loop(consumer.Consumer.group_metadata)
    metrics = _on_loop(consumer.Consumer.metrics)
    stop = _Twin.close


class Admin(_Twin[admin.Admin]):
    """All that can be asked of a cluster, and changed in it; options and results are those of `ottla.Admin`."""

    def __init__(self, *, call_timeout_ms: int | None = None, **options: Unpack[ClientOptions]) -> None:
        super().__init__(admin.Admin(**options), call_timeout_ms)

    @classmethod
    def from_config(
        cls, config: Config, *, call_timeout_ms: int | None = None, **overrides: Unpack[ClientOptions]
    ) -> Self:
        """Take options with dotted names, from a mapping or a .properties file."""
        return cls(call_timeout_ms=call_timeout_ms, **ClientSettings.kwargs_from_config(config, overrides))

    metrics = _on_loop(admin.Admin.metrics)
    create_topics = _blocking(admin.Admin.create_topics)
    delete_topics = _blocking(admin.Admin.delete_topics)
    list_deleted_topics = _blocking(admin.Admin.list_deleted_topics)
    undelete_topics = _blocking(admin.Admin.undelete_topics)
    create_partitions = _blocking(admin.Admin.create_partitions)
    list_topics = _blocking(admin.Admin.list_topics)
    describe_topics = _blocking(admin.Admin.describe_topics)
    delete_records = _blocking(admin.Admin.delete_records)
    list_offsets = _blocking(admin.Admin.list_offsets)
    record_times = _blocking(admin.Admin.record_times)
    elect_leaders = _blocking(admin.Admin.elect_leaders)
    alter_partition_reassignments = _blocking(admin.Admin.alter_partition_reassignments)
    list_partition_reassignments = _blocking(admin.Admin.list_partition_reassignments)
    describe_log_dirs = _blocking(admin.Admin.describe_log_dirs)
    alter_replica_log_dirs = _blocking(admin.Admin.alter_replica_log_dirs)
    describe_cluster = _blocking(admin.Admin.describe_cluster)
    api_versions = _blocking(admin.Admin.api_versions)
    describe_configs = _blocking(admin.Admin.describe_configs)
    alter_configs = _blocking(admin.Admin.alter_configs)
    list_groups = _blocking(admin.Admin.list_groups)
    describe_groups = _blocking(admin.Admin.describe_groups)
    delete_groups = _blocking(admin.Admin.delete_groups)
    list_group_offsets = _blocking(admin.Admin.list_group_offsets)
    alter_group_offsets = _blocking(admin.Admin.alter_group_offsets)
    delete_group_offsets = _blocking(admin.Admin.delete_group_offsets)
    list_transactions = _blocking(admin.Admin.list_transactions)
    describe_transactions = _blocking(admin.Admin.describe_transactions)
    describe_producers = _blocking(admin.Admin.describe_producers)
    list_open_transactions = _blocking(admin.Admin.list_open_transactions)
    find_hanging_transactions = _blocking(admin.Admin.find_hanging_transactions)
    abort_transaction = _blocking(admin.Admin.abort_transaction)
    fence_producers = _blocking(admin.Admin.fence_producers)
    create_acls = _blocking(admin.Admin.create_acls)
    describe_acls = _blocking(admin.Admin.describe_acls)
    delete_acls = _blocking(admin.Admin.delete_acls)
    describe_client_quotas = _blocking(admin.Admin.describe_client_quotas)
    alter_client_quotas = _blocking(admin.Admin.alter_client_quotas)
    describe_user_scram_credentials = _blocking(admin.Admin.describe_user_scram_credentials)
    alter_user_scram_credentials = _blocking(admin.Admin.alter_user_scram_credentials)
    create_delegation_token = _blocking(admin.Admin.create_delegation_token)
    renew_delegation_token = _blocking(admin.Admin.renew_delegation_token)
    expire_delegation_token = _blocking(admin.Admin.expire_delegation_token)
    describe_delegation_tokens = _blocking(admin.Admin.describe_delegation_tokens)


class _ThreadedListener(ConsumerRebalanceListener):
    """Calls a listener on another thread than the loop's, so that it may make blocking calls while that goes on."""

    def __init__(self, listener: ConsumerRebalanceListener) -> None:
        self._listener = listener

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        await self._call(self._listener.on_partitions_revoked, revoked)

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        await self._call(self._listener.on_partitions_assigned, assigned)

    async def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        await self._call(self._listener.on_partitions_lost, lost)

    @staticmethod
    async def _call(method: Callable[[set[TopicPartition]], Any], partitions: set[TopicPartition]) -> None:
        waiting = await asyncio.to_thread(method, partitions)
        if inspect.isawaitable(waiting):
            await waiting
