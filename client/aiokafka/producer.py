"""AIOKafkaProducer: aiokafka's producer on ours."""

from __future__ import annotations

import asyncio
from functools import partial
from types import TracebackType
from typing import Any, ClassVar, Final, Self

from ottla.client import errors as ours
from ottla.client.aiokafka.batch_builder import BatchBuilder
from ottla.client.aiokafka.client import AIOKafkaClient, bootstrapping
from ottla.client.aiokafka.errors import IllegalOperation, MessageSizeTooLargeError
from ottla.client.aiokafka.options import check_deprecated, client_options
from ottla.client.aiokafka.partitioner import DefaultPartitioner
from ottla.client.aiokafka.structs import RecordMetadata, TopicPartition, checked_offsets
from ottla.client.aiokafka.translation import translated, translating
from ottla.client.producer.producer import Producer
from ottla.client.producer.producer_batch import Delivery
from ottla.client.producer.transactions import TransactionPhase
from ottla.client.types import OffsetAndMetadata
from ottla.protocol import identifiers
from ottla.protocol.record_batch_builder import record_size_max
from ottla.protocol.records import BATCH_HEADER_BYTES

__all__ = ["AIOKafkaProducer"]

_missing: Final = object()
_DEFAULT_PARTITIONER: Final = DefaultPartitioner()


class AIOKafkaProducer:
    """Writes records to topics; arguments and methods are aiokafka's, and so are their defaults.

    `send` returns a future. Records without a key go to any partition, each to another one.
    """

    _PRODUCER_CLIENT_ID_SEQUENCE: ClassVar = 0

    def __init__(
        self,
        *,
        loop: Any = None,
        bootstrap_servers: Any = "localhost",
        client_id: str | None = None,
        metadata_max_age_ms: int = 300000,
        request_timeout_ms: int = 40000,
        api_version: Any = None,
        acks: Any = _missing,
        key_serializer: Any = None,
        value_serializer: Any = None,
        compression_type: Any = None,
        max_batch_size: int = 16384,
        partitioner: Any = _DEFAULT_PARTITIONER,
        max_request_size: int = 1048576,
        linger_ms: int = 0,
        retry_backoff_ms: int = 100,
        security_protocol: str = "PLAINTEXT",
        ssl_context: Any = None,
        connections_max_idle_ms: int | None = 540000,
        enable_idempotence: bool = False,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60000,
        sasl_mechanism: str = "PLAIN",
        sasl_plain_password: str | None = None,
        sasl_plain_username: str | None = None,
        sasl_kerberos_service_name: str = "kafka",
        sasl_kerberos_domain_name: str | None = None,
        sasl_oauth_token_provider: Any = None,
    ) -> None:
        check_deprecated(loop, api_version)
        if acks not in (0, 1, -1, "all", _missing):
            raise ValueError("Invalid ACKS parameter")
        if compression_type not in ("gzip", "snappy", "lz4", "zstd", None):
            raise ValueError("Invalid compression type!")
        is_idempotent = enable_idempotence or transactional_id is not None
        if acks is _missing:
            acks = "all" if is_idempotent else 1
        elif is_idempotent and acks not in ("all", -1):
            raise ValueError(f"acks={acks} not supported if enable_idempotence=True")
        if client_id is None:
            AIOKafkaProducer._PRODUCER_CLIENT_ID_SEQUENCE += 1
            client_id = f"aiokafka-producer-{AIOKafkaProducer._PRODUCER_CLIENT_ID_SEQUENCE}"
        options = client_options(
            bootstrap_servers=bootstrap_servers,
            client_id=client_id,
            metadata_max_age_ms=metadata_max_age_ms,
            request_timeout_ms=request_timeout_ms,
            retry_backoff_ms=retry_backoff_ms,
            ssl_context=ssl_context,
            security_protocol=security_protocol,
            connections_max_idle_ms=connections_max_idle_ms,
            sasl_mechanism=sasl_mechanism,
            sasl_plain_username=sasl_plain_username,
            sasl_plain_password=sasl_plain_password,
            sasl_oauth_token_provider=sasl_oauth_token_provider,
        )
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._partitioner = partitioner
        self._max_request_size = max_request_size
        self._has_acks = acks != 0
        self._closed = False
        try:
            self._producer = Producer(
                **options,
                acks=acks,
                enable_idempotence=is_idempotent,
                transactional_id=transactional_id,
                transaction_timeout_ms=transaction_timeout_ms,
                compression_type=compression_type,
                max_batch_size=max_batch_size,
                # A record may be as large as a request of aiokafka's, which has no other batch then.
                max_request_size=max(max_request_size, max_batch_size),
                buffer_memory=max(32 << 20, 2 * max_request_size),
                linger_ms=linger_ms,
                delivery_timeout_ms=max(request_timeout_ms, linger_ms),
                max_block_ms=request_timeout_ms,
                partitioner=self._choose,
            )
        except ours.KafkaConfigurationError as error:
            raise ValueError(error.detail) from error

    @property
    def client(self) -> AIOKafkaClient:
        """Metadata of the cluster."""
        return AIOKafkaClient.around(self._producer.settings, self._producer._cluster)

    async def start(self) -> None:
        """Connect to the cluster; KafkaConnectionError if no broker answers."""
        with bootstrapping(self._producer.settings):
            await self._producer.start()

    @translating
    async def flush(self) -> None:
        """Send all waiting records, and wait until they are written or have failed."""
        await self._producer.flush()

    async def stop(self) -> None:
        """Send all waiting records and close."""
        if not self._closed:
            self._closed = True
            await self._producer.stop()

    @translating
    async def partitions_for(self, topic: Any) -> set[int]:
        """Return the partitions of a topic."""
        return await self._producer.partitions_for(topic)

    async def send(
        self,
        topic: Any,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Any = None,
    ) -> asyncio.Future[Any]:
        """Add a record to a batch; return the future of its metadata, or of None with acks=0."""
        assert not (value is None and key is None), "Need at least one: key or value"
        self._check_in_transaction()
        if self._key_serializer is not None:
            key = self._key_serializer(key)
        if self._value_serializer is not None:
            value = self._value_serializer(value)
        headers = list(headers) if headers else ()
        size = BATCH_HEADER_BYTES + record_size_max(key, value, headers)
        if size > self._max_request_size:
            raise MessageSizeTooLargeError(
                f"The message is {size} bytes when serialized which is larger than max_request_size"
            )
        try:
            delivery = await self._producer.send(topic, value, key, partition, timestamp_ms, headers)
        except ours.KafkaError as error:
            raise translated(error) from error
        return self._future(delivery)

    async def send_and_wait(
        self,
        topic: Any,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Any = None,
    ) -> Any:
        """Send a record and wait until it is written."""
        return await (await self.send(topic, value, key, partition, timestamp_ms, headers))

    def create_batch(self) -> BatchBuilder:
        """Return an empty batch to fill by hand, for `send_batch`."""
        return BatchBuilder(self._producer.create_batch(), self._key_serializer, self._value_serializer)

    async def send_batch(self, batch: BatchBuilder, topic: Any, *, partition: int) -> asyncio.Future[Any]:
        """Send a batch; return the future of the metadata of its first record."""
        self._check_in_transaction()
        batch.close()
        try:
            delivery = await self._producer.send_batch(batch.ours, topic, partition=partition)
        except ours.KafkaError as error:
            raise translated(error) from error
        return self._future(delivery, is_batch=True)

    # Transactions.

    @translating
    async def begin_transaction(self) -> None:
        """Begin a transaction."""
        self._check_transactional()
        await self._producer.begin_transaction()

    @translating
    async def commit_transaction(self) -> None:
        """Wait until all records of the transaction are written, and commit it."""
        self._check_transactional()
        await self._producer.commit_transaction()

    @translating
    async def abort_transaction(self) -> None:
        """Abort the transaction."""
        self._check_transactional()
        await self._producer.abort_transaction()

    def transaction(self) -> TransactionContext:
        """Return a transaction for `async with`."""
        return TransactionContext(self)

    @translating
    async def send_offsets_to_transaction(self, offsets: Any, group_id: Any) -> None:
        """Commit the offsets of a group with the transaction."""
        self._check_transactional()
        if self._phase() is not TransactionPhase.OPEN:
            raise IllegalOperation("Not in the middle of a transaction")
        if not group_id or not isinstance(group_id, str):
            raise ValueError(group_id)
        rows = {
            identifiers.TopicPartition(*partition): OffsetAndMetadata(*given)
            for partition, given in checked_offsets(offsets).items()
        }
        await self._producer.send_offsets_to_transaction(rows, group_id)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.stop()

    # Private methods.

    def _choose(self, key: bytes | None, partitions: Any, available: Any) -> int:
        chosen: int = self._partitioner(key, list(partitions), list(available))
        return chosen

    def _phase(self) -> TransactionPhase | None:
        transactions = self._producer._transactions
        return None if transactions is None else transactions.state

    def _check_transactional(self) -> None:
        if self._producer.settings.transactional_id is None:
            raise IllegalOperation("You need to configure transaction_id to use transactions")

    def _check_in_transaction(self) -> None:
        if self._phase() is TransactionPhase.READY:
            raise IllegalOperation("Can't send messages while not in transaction")

    def _future(self, delivery: Delivery, *, is_batch: bool = False) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        delivery.add_done_callback(partial(self._settle, future, is_batch))
        return future

    def _settle(self, future: asyncio.Future[Any], is_batch: bool, delivery: Delivery) -> None:
        error = delivery.exception()
        if future.done():
            return
        if error is not None:
            future.set_exception(translated(error))
        elif not self._has_acks:
            future.set_result(None)
        else:
            future.set_result(_metadata(delivery, is_batch=is_batch))


class TransactionContext:
    """A transaction as a block: committed at its end, and aborted if it raises."""

    def __init__(self, producer: AIOKafkaProducer) -> None:
        self._producer = producer

    async def __aenter__(self) -> Self:
        await self._producer.begin_transaction()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if exc_type is None:
            await self._producer.commit_transaction()
        elif self._producer._phase() is not TransactionPhase.FATAL:
            await self._producer.abort_transaction()


def _metadata(delivery: Delivery, *, is_batch: bool) -> RecordMetadata:
    topic, partition, _, offset, timestamp, timestamp_type, log_start_offset = delivery.result()
    if is_batch and timestamp_type == 0:
        # A batch has no timestamp of its own, unless the broker sets it.
        timestamp = -1
    where = TopicPartition(topic, partition)
    return RecordMetadata(topic, partition, where, offset, timestamp, int(timestamp_type), log_start_offset)
