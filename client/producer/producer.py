"""The producer: `send` adds records to batches, the sender sends those to the brokers."""

from __future__ import annotations

import asyncio
import atexit
import logging
import time
from types import TracebackType
from typing import Any, Final, Self, Unpack

from ottla.client.errors import (
    IllegalStateError,
    InvalidRecordError,
    KafkaError,
    KafkaTimeoutError,
    ProducerClosed,
    UnknownTopicOrPartitionError,
    error_for,
)
from ottla.client.net.backoff import Backoff
from ottla.client.net.client_metrics import Metrics
from ottla.client.net.cluster_client import ClusterClient
from ottla.client.net.metadata import ClusterMetadata
from ottla.client.net.settings import Config
from ottla.client.producer.accumulator import TopicQueues
from ottla.client.producer.interceptors import ProducerInterceptors
from ottla.client.producer.partition_queue import PartitionQueue
from ottla.client.producer.prepared_transaction import PreparedTransaction
from ottla.client.producer.producer_batch import BatchBuilder, Delivery, ProducerBatch
from ottla.client.producer.sender import Sender
from ottla.client.producer.settings import ProducerOptions, ProducerSettings
from ottla.client.producer.transactions import TransactionContext, Transactions
from ottla.client.types import ConsumerGroupMetadata, Offsets, RecordMetadata, with_metadata
from ottla.protocol.errors import EncodeError, ErrorCode
from ottla.protocol.record_batch_builder import RECORD_OVERHEAD_MAX, HeadersToWrite, record_size_max

# Not below `ottla.client`, which is silent by default: a program that loses records should say so.
lost_records_log = logging.getLogger("ottla.lost_records")

# A new topic may not be known to every broker yet; one that is missing for longer does not exist.
_MISSING_TOPIC_WAIT_S: Final = 5.0


class Producer:
    """Writes records to topics.

        async with Producer(bootstrap_servers="localhost:9092") as producer:
            metadata = await producer.send_and_wait("topic", b"value", key=b"key")

    With a transactional_id, records are sent in transactions only:

        async with producer.transaction():
            await producer.send("topic", b"value")

    Options are those of `ProducerSettings`. All methods belong to the event loop that `start` ran on.
    """

    def __init__(self, **options: Unpack[ProducerOptions]) -> None:
        """Take options; KafkaConfigurationError if one is unknown or not valid. Does not connect yet."""
        self.settings = ProducerSettings.from_kwargs(options)
        self._cluster: ClusterClient | None = None
        # Set between start and stop.
        self._sender: Sender | None = None
        # Set from start on, if there is a transactional_id.
        self._transactions: Transactions | None = None
        self._topics: dict[str, TopicQueues] = {}
        self._key_serializer = self.settings.key_serializer
        self._value_serializer = self.settings.value_serializer
        self._partitioner = self.settings.partitioner
        self._max_batch_size = self.settings.max_batch_size
        if self.settings.interceptors:
            # Around the method, so that it costs nothing without interceptors.
            self.send = ProducerInterceptors(self.settings.interceptors).around(self.send)  # type: ignore[method-assign]

    @classmethod
    def from_config(cls, config: Config, **overrides: Unpack[ProducerOptions]) -> Self:
        """Take options with dotted names, from a mapping or a .properties file."""
        return cls(**ProducerSettings.kwargs_from_config(config, overrides))

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Connect to the cluster; NoBrokersAvailable if none of its brokers answers.

        With a transactional_id, also take it over: a producer that has used it so far is fenced.
        """
        if self._cluster is not None:
            raise IllegalStateError("the producer was already started once; create a new one")
        self._cluster = ClusterClient(self.settings)
        await self._cluster.start()
        sender = Sender(self._cluster, self.settings)
        if sender.transactions is not None:
            try:
                await sender.transactions.start()
            except BaseException:
                await sender.close()
                await self._cluster.close()
                raise
        self._sender = sender
        self._transactions = sender.transactions
        self._topics = sender.accumulator.topics
        self._cluster.add_listener(self._metadata_changed)
        self._cluster.report(self.metrics)
        _running.add(self)

    @property
    def unwritten(self) -> int:
        """The number of records that were sent, and are neither written nor failed yet."""
        if self._sender is None:
            return 0
        return sum(batch.record_count for batch in self._sender.accumulator.unfinished if not batch.future.done())

    def metrics(self) -> Metrics:
        """Return what the producer has measured, by group and name as in Kafka's documentation."""
        sender = self._running()
        assert self._cluster is not None
        return sender.metrics.values(self._cluster.connection_metrics(), sender.accumulator)

    async def stop(self) -> None:
        """Send waiting records, for up to delivery_timeout_ms, and close; a transaction that is open is aborted."""
        _running.discard(self)
        sender, self._sender = self._sender, None
        # Records that were added are sent; new ones are refused.
        self._topics = {}
        if sender is not None:
            try:
                await (sender.flush() if sender.transactions is None else sender.transactions.close())
            finally:
                await sender.close()
        if self._cluster is not None:
            await self._cluster.close()

    close = stop

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersToWrite | None = None,
    ) -> Delivery:
        """Add a record to a batch. Await the result to get its metadata, or the error if it was not written.

        Waits only for the metadata of a new topic, and while buffer_memory is full. Without `partition` the key
        decides. Records without either fill a batch for one partition, and then one for another.
        """
        if self._key_serializer is not None:
            key = self._key_serializer(key)
        if self._value_serializer is not None:
            value = self._value_serializer(value)
        if type(key) is not bytes and key is not None:
            key = _as_bytes(key, "key")
        if type(value) is not bytes and value is not None:
            value = _as_bytes(value, "value")
        queues = self._topics.get(topic) or await self._topic(topic)
        if partition is None and self._partitioner is None:
            queue = queues.sticky if key is None else queues.of_key(key)
        elif partition is not None and 0 <= partition < queues.count:
            queue = queues.queues[partition]
        else:
            queue = await self._chosen(queues, partition, key)
        if self._transactions is not None:
            self._transactions.check_sending()

        if headers:
            size = record_size_max(key, value, headers)
        else:
            size = RECORD_OVERHEAD_MAX + (0 if value is None else len(value)) + (0 if key is None else len(key))
        batch = queue.open
        if batch is None or batch.builder.size + size > self._max_batch_size:
            batch = await self._room(queue, size, sticky=key is None and partition is None and not self._partitioner)
        if timestamp_ms is None:
            timestamp_ms = int(time.time() * 1000)
        try:
            index = batch.builder.append(timestamp_ms, key, value, headers or ())
        except BaseException as error:
            self._running().accumulator.withdraw(batch)
            raise (InvalidRecordError(str(error)) if isinstance(error, EncodeError) else error) from None
        return Delivery(batch, index, timestamp_ms)

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersToWrite | None = None,
    ) -> RecordMetadata:
        """Send a record and wait until it is written."""
        return await (await self.send(topic, value, key, partition, timestamp_ms, headers))

    async def flush(self) -> None:
        """Send all waiting records now, and wait until they are written or have failed."""
        await self._running().flush()

    def create_batch(self) -> BatchBuilder:
        """Return an empty batch to fill by hand, for `send_batch`."""
        return BatchBuilder(self._max_batch_size)

    async def send_batch(self, batch: BatchBuilder, topic: str, *, partition: int) -> Delivery:
        """Send a batch; await the result to get the metadata of its first record."""
        accumulator = self._running().accumulator
        batch.close()
        if not batch.record_count():
            raise IllegalStateError("the batch has no records")
        queue = await self._chosen(await self._topic(topic), partition, None)
        size = batch.size()
        if not accumulator.memory.take_now(size):
            await accumulator.memory.take(size, self.settings.max_block_ms)
        try:
            self._check_sending()
        except KafkaError:
            accumulator.memory.give_back(size)
            raise
        accumulator.close_batch(queue)
        added = accumulator.add(queue, batch.builder, size, may_split=False)
        self._running().ready(queue)
        return Delivery(added, 0, batch.builder.max_timestamp)

    async def partitions_for(self, topic: str) -> set[int]:
        """Return the partitions of a topic."""
        return set(range((await self._topic(topic)).count))

    # Transactions.

    async def begin_transaction(self) -> None:
        """Begin a transaction: records sent until it ends become visible together, or not at all.

        Readers with isolation_level="read_committed" do not see them before. Needs transactional_id.
        """
        self._transactional().begin()

    async def commit_transaction(self) -> None:
        """Wait until all records of the transaction are written, and commit it.

        If that raises an error which is `abortable`, abort the transaction. After a KafkaTimeoutError which is not, the
        outcome is unknown: call this again.
        """
        await self._transactional().commit()

    async def abort_transaction(self) -> None:
        """Abort the transaction: its records are given up, and readers of committed records never see them."""
        await self._transactional().abort()

    async def prepare_transaction(self) -> PreparedTransaction:
        """Wait until all records of the transaction are written, and hand it over to another process to be ended.

        That calls `end_prepared`. This producer sends nothing more, and `stop` leaves the transaction open. If nobody
        ends it, the brokers abort it after transaction_timeout_ms, or when a new producer takes the transactional_id.
        """
        return await self._transactional().prepare()

    def transaction(self) -> TransactionContext:
        """Return a transaction for `async with`: committed at the end of the block, and aborted if it raises."""
        return TransactionContext(self._transactional())

    async def send_offsets_to_transaction(self, offsets: Offsets, group_id: str | ConsumerGroupMetadata) -> None:
        """Commit the offsets of a group with the transaction, so that records are read and written as one step.

        With `consumer.group_metadata()` in place of the group's id, offsets are refused if the group has rebalanced
        since the records were read. An offset is that of the next record to read.
        """
        group = ConsumerGroupMetadata(group_id) if isinstance(group_id, str) else group_id
        if not group.group_id:
            raise IllegalStateError("committing offsets needs the id of a group")
        await self._transactional().add_offsets(with_metadata(offsets), group)

    # Private methods.

    def _running(self) -> Sender:
        if self._sender is None:
            raise ProducerClosed("the producer is not running")
        return self._sender

    def _transactional(self) -> Transactions:
        if self.settings.transactional_id is None:
            raise IllegalStateError("transactions need transactional_id")
        self._running()
        assert self._transactions is not None
        return self._transactions

    def _check_sending(self) -> None:
        """Raise an error if the producer was stopped, or its transaction has ended."""
        self._running()
        if self._transactions is not None:
            self._transactions.check_sending()

    async def _room(self, queue: PartitionQueue, size: int, *, sticky: bool) -> ProducerBatch:
        sender = self._running()
        batch = await sender.accumulator.room(queue, size, sticky)
        try:
            self._check_sending()
        except KafkaError:
            sender.accumulator.withdraw(batch)
            raise
        return batch

    async def _chosen(self, queues: TopicQueues, partition: int | None, key: bytes | None) -> PartitionQueue:
        """Return the queue of a partition that the caller or the caller's partitioner chose."""
        if partition is None:
            assert self._partitioner is not None
            partition = self._partitioner(key, range(queues.count), queues.available)
        if not 0 <= partition < queues.count:
            # The partition may have been added since.
            assert self._cluster is not None
            self._metadata_changed(await self._cluster.metadata([queues.name], force=True))
            if not 0 <= partition < queues.count:
                raise UnknownTopicOrPartitionError(
                    f"topic {queues.name} has partitions 0 to {queues.count - 1}, not {partition}"
                )
        return queues.queues[partition]

    async def _topic(self, topic: str) -> TopicQueues:
        """Return the queues of a topic, waiting until its partitions are known."""
        sender = self._running()
        known = self._topics.get(topic)
        if known is not None:
            return known
        assert self._cluster is not None
        backoff = Backoff(self.settings.retry_backoff_ms, self.settings.retry_backoff_max_ms)
        begun = asyncio.get_running_loop().time()
        error: KafkaError = KafkaTimeoutError(f"no metadata of topic {topic}")
        while (waited := asyncio.get_running_loop().time() - begun) * 1000 < self.settings.max_block_ms:
            try:
                snapshot = await self._cluster.metadata([topic], allow_auto_create=True)
            except KafkaError as failure:
                if not failure.retriable:
                    raise
                error = failure
            else:
                found = snapshot.topics[topic]
                if found.partitions and found.error is ErrorCode.NONE:
                    self._running()
                    self._cluster.add_topics([topic], allow_auto_create=False)
                    return sender.accumulator.update(found)
                error = error_for(found.error or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic}")
                is_missing = found.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if not error.retriable or (is_missing and waited > _MISSING_TOPIC_WAIT_S):
                    raise error
            await asyncio.sleep(backoff.next())
        raise error

    def _metadata_changed(self, snapshot: ClusterMetadata) -> None:
        for name in self._topics:
            found = snapshot.topics.get(name)
            if found is not None and found.partitions and self._sender is not None:
                self._sender.accumulator.update(found)


# Producers that were started and not stopped. A program that ends with records in one of them loses these records.
_running: Final[set[Producer]] = set()


@atexit.register
def _warn_of_unwritten() -> None:
    for producer in _running:
        if count := producer.unwritten:
            lost_records_log.warning(
                "%d record(s) were not written when the program ended: await stop() or flush() before, or use the "
                "producer in `async with`",
                count,
            )


def _as_bytes(data: object, what: str) -> bytes:
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise TypeError(
        f"the {what} of a record must be bytes, not {type(data).__name__}: encode it, or set {what}_serializer"
    )
