"""Sends the rows of a task with a producer, as Arrow record batches come from Spark."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, TypeVar

from pyspark.sql.datasource import WriterCommitMessage

from ottla.client.producer.prepared_transaction import PreparedTransaction
from ottla.client.producer.producer import Producer
from ottla.client.producer.producer_batch import Delivery
from ottla.client.producer.settings import ProducerSettings
from ottla.client.sync.loop_thread import LoopThread
from ottla.pipeline.sources.errors import SourceOptionError
from ottla.pipeline.sources.rows import Array, Rows
from ottla.protocol.identifiers import TopicPartition

T = TypeVar("T")


@dataclass
class Written(WriterCommitMessage):
    """What a task has written: how many records, and the first and last offset by partition."""

    records: int = 0
    offsets: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    # With exactlyOnce: what the driver has to commit, or which shard had been written before.
    transaction: PreparedTransaction | None = None
    repeated: str | None = None

    def add(self, partition: TopicPartition, offset: int) -> None:
        """Count a record."""
        self.records += 1
        first, last = self.offsets.get(partition, (offset, offset))
        self.offsets[partition] = min(first, offset), max(last, offset)


class RowSender:
    """A producer for the rows of one task, to be used in `with`; its methods block.

    With a transactional id, it takes that over when the block is entered, and begins a transaction with `begin`. Unless
    that is handed over with `prepare`, it is aborted when the block is left.
    """

    def __init__(self, settings: ProducerSettings, topic: str | None) -> None:
        self._topic = topic
        self._producer = Producer(**vars(settings))
        self._thread: LoopThread | None = None

    def __enter__(self) -> Self:
        self._thread = LoopThread.acquire()
        try:
            self._thread.call(self._producer.start())
        except BaseException:
            self._thread.release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._thread is not None
        try:
            self._thread.call(self._producer.stop())
        finally:
            self._thread.release()

    def begin(self) -> None:
        """Begin a transaction."""
        self._call(self._producer.begin_transaction())

    def prepare(self) -> PreparedTransaction:
        """Return the transaction, which is left open for another process to end."""
        return self._call(self._producer.prepare_transaction())

    def send(self, batches: Iterable[Rows]) -> Written:
        """Send all rows, and return when they are acknowledged; the first error that a record meets is raised."""
        written = Written()
        under_way: list[Delivery] = []
        for batch in batches:
            sent = self._call(_send(self._producer, _records(batch, self._topic)))
            # The records of one batch are on their way while the next is read.
            self._call(_settle(under_way, written))
            under_way = sent
        self._call(self._producer.flush())
        self._call(_settle(under_way, written))
        return written

    def send_record(self, partition: TopicPartition, key: bytes, value: bytes) -> int:
        """Send a record that is not a row, and return its offset."""
        sending = self._producer.send_and_wait(partition.topic, value, key, partition.partition)
        return self._call(sending).offset

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        assert self._thread is not None
        return self._thread.call(work)


async def _send(producer: Producer, records: Iterable[tuple[Any, ...]]) -> list[Delivery]:
    send = producer.send
    return [
        await send(topic, value, key, partition, None, headers) for topic, key, value, partition, headers in records
    ]


async def _settle(deliveries: Iterable[Delivery], written: Written) -> None:
    for delivery in deliveries:
        metadata = await delivery
        written.add(metadata.topic_partition, metadata.offset)


def _records(batch: Rows, topic: str | None) -> Iterator[tuple[Any, ...]]:
    """Yield topic, key, value, partition and headers of each row."""
    columns = {name.lower(): column for name, column in zip(batch.schema.names, batch.columns, strict=True)}
    nothing = [None] * batch.num_rows
    topics = [topic] * batch.num_rows if topic is not None else columns["topic"].to_pylist()
    if None in topics:
        raise SourceOptionError(
            "A row has null in the column 'topic': fill it in, or set the option topic for all rows."
        )
    return zip(
        topics,
        _bytes(columns["key"]) if "key" in columns else nothing,
        _bytes(columns["value"]),
        columns["partition"].to_pylist() if "partition" in columns else nothing,
        map(_headers, columns["headers"].to_pylist()) if "headers" in columns else nothing,
        strict=True,
    )


def _bytes(column: Array) -> list[bytes | None]:
    import pyarrow as pa

    # The bytes of a string are its UTF-8, so there is nothing to encode.
    values: list[bytes | None] = column.cast(pa.binary()).to_pylist()
    return values


def _headers(rows: list[dict[str, Any] | None] | None) -> list[tuple[str, bytes | None]]:
    return [(row["key"], row["value"]) for row in rows or () if row is not None]
