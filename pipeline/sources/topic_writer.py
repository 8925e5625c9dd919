"""Writes rows to topics: each task has an idempotent producer, and is done when all its records are acknowledged.

Spark runs a task again that failed, and a trigger that was cut off, so a record may be written more than once, and is
written at least once. Columns are those of Spark's own sink: value, and if wanted key, headers, topic and partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    NullType,
    StringType,
    StructType,
)

from ottla.client.producer.producer import Producer
from ottla.client.producer.producer_batch import Delivery
from ottla.client.sync.loop_thread import LoopThread
from ottla.pipeline.sources.errors import SourceOptionError
from ottla.pipeline.sources.kafka_options import writer_settings
from ottla.pipeline.sources.rows import Array, Rows
from ottla.protocol.identifiers import TopicPartition

_BYTES: Final = (StringType, BinaryType, NullType)


@dataclass
class Written(WriterCommitMessage):
    """What a task has written: how many records, and the first and last offset by partition."""

    records: int = 0
    offsets: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)

    def add(self, partition: TopicPartition, offset: int) -> None:
        """Count a record."""
        self.records += 1
        first, last = self.offsets.get(partition, (offset, offset))
        self.offsets[partition] = min(first, offset), max(last, offset)


def check_columns(schema: StructType, topic: str | None) -> None:
    """Refuse rows that cannot be written; SourceOptionError says which column is missing or of the wrong type."""
    types = {each.name.lower(): each.dataType for each in schema}
    if "value" not in types:
        raise SourceOptionError(f"A column 'value' is missing; the columns are {', '.join(schema.names)}.")
    if topic is None and "topic" not in types:
        raise SourceOptionError("Where to write is not said: set the option topic, or have a column 'topic'.")
    for name in ("key", "value"):
        if name in types and not isinstance(types[name], _BYTES):
            raise _wrong(name, types[name], "a string or binary: cast it, or use to_json")
    if topic is None and not isinstance(types["topic"], StringType):
        raise _wrong("topic", types["topic"], "a string")
    if "partition" in types and not isinstance(types["partition"], IntegerType):
        raise _wrong("partition", types["partition"], "an integer")
    if "headers" in types and not _are_headers(types["headers"]):
        raise _wrong("headers", types["headers"], "array<struct<key:string,value:binary>>")


class TopicWriter(DataSourceArrowWriter):
    """Writes a batch."""

    def __init__(self, config: Mapping[str, str], topic: str | None) -> None:
        self._config = dict(config)
        self._topic = topic

    def write(self, iterator: Iterator[Rows]) -> Written:
        """Write the rows of a task, and return when all are acknowledged."""
        return write_rows(self._config, self._topic, iterator)


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a stream."""

    def __init__(self, config: Mapping[str, str], topic: str | None) -> None:
        self._config = dict(config)
        self._topic = topic

    def write(self, iterator: Iterator[Rows]) -> Written:
        """Write the rows of a task, and return when all are acknowledged."""
        return write_rows(self._config, self._topic, iterator)


def write_rows(config: Mapping[str, str], topic: str | None, batches: Iterable[Rows]) -> Written:
    """Write Arrow record batches with a producer of their own; the first error that a record meets is raised."""
    settings = writer_settings(config)
    thread = LoopThread.acquire()
    producer = Producer(**vars(settings))
    written = Written()
    try:
        thread.call(producer.start())
        try:
            under_way: list[Delivery] = []
            for batch in batches:
                sent = thread.call(_send(producer, _records(batch, topic)))
                # The records of one batch are on their way while the next is read.
                thread.call(_settle(under_way, written))
                under_way = sent
            thread.call(producer.flush())
            thread.call(_settle(under_way, written))
        finally:
            thread.call(producer.stop())
    finally:
        thread.release()
    return written


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


def _are_headers(given: DataType) -> bool:
    if not isinstance(given, ArrayType) or not isinstance(given.elementType, StructType):
        return False
    fields = [(each.name, type(each.dataType)) for each in given.elementType]
    return fields == [("key", StringType), ("value", BinaryType)]


def _wrong(name: str, given: DataType, wanted: str) -> SourceOptionError:
    return SourceOptionError(f"The column '{name}' is {given.simpleString()}; it must be {wanted}.")
