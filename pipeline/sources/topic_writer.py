"""Writes rows to topics: each task has an idempotent producer, and is done when all its records are acknowledged.

Spark runs a task again that failed, and a trigger that was cut off, so a record may be written more than once, and is
written at least once; with the option exactlyOnce, once. Columns are those of Spark's own sink: value, and if wanted
key, headers, topic and partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

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

from ottla.pipeline.sources.errors import SourceOptionError
from ottla.pipeline.sources.kafka_options import writer_settings
from ottla.pipeline.sources.options import ExactlyOnce
from ottla.pipeline.sources.row_sender import RowSender, Written
from ottla.pipeline.sources.rows import Rows
from ottla.pipeline.sources.shard_writer import end_shards, write_shard
from ottla.pipeline.sources.sharding import SHARD

_BYTES: Final = (StringType, BinaryType, NullType)


def check_columns(schema: StructType, topic: str | None, exactly_once: ExactlyOnce | None) -> None:
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
    if exactly_once is not None and not isinstance(types.get(SHARD), IntegerType):
        raise SourceOptionError(
            f"A column '{SHARD}' of integers is missing, which exactlyOnce needs: write the result of "
            "sharded(frame, shards) from ottla.pipeline.sources.sharding."
        )


class TopicWriter(DataSourceArrowWriter):
    """Writes a batch."""

    def __init__(self, config: Mapping[str, str], topic: str | None, exactly_once: ExactlyOnce | None) -> None:
        self._config = dict(config)
        self._topic = topic
        self._exactly_once = exactly_once

    def write(self, iterator: Iterator[Rows]) -> Written:
        """Write the rows of a task, and return when all are acknowledged."""
        return write_rows(self._config, self._topic, self._exactly_once, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit what the tasks have written, when all of them have ended well."""
        end_shards(self._config, messages, committed=True)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Abort what the tasks have written, where some of them failed."""
        end_shards(self._config, messages, committed=False)


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a stream."""

    def __init__(self, config: Mapping[str, str], topic: str | None, exactly_once: ExactlyOnce | None) -> None:
        self._config = dict(config)
        self._topic = topic
        self._exactly_once = exactly_once

    def write(self, iterator: Iterator[Rows]) -> Written:
        """Write the rows of a task, and return when all are acknowledged."""
        return write_rows(self._config, self._topic, self._exactly_once, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Commit what the tasks have written, when all of them have ended well."""
        end_shards(self._config, messages, committed=True)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Abort what the tasks have written, where some of them failed."""
        end_shards(self._config, messages, committed=False)


def write_rows(
    config: Mapping[str, str], topic: str | None, exactly_once: ExactlyOnce | None, batches: Iterator[Rows]
) -> Written:
    """Write the rows of a task; the first error that a record meets is raised."""
    if exactly_once is not None:
        return write_shard(config, topic, exactly_once, batches)
    with RowSender(writer_settings(config), topic) as sender:
        return sender.send(batches)


def _are_headers(given: DataType) -> bool:
    if not isinstance(given, ArrayType) or not isinstance(given.elementType, StructType):
        return False
    fields = [(each.name, type(each.dataType)) for each in given.elementType]
    return fields == [("key", StringType), ("value", BinaryType)]


def _wrong(name: str, given: DataType, wanted: str) -> SourceOptionError:
    return SourceOptionError(f"The column '{name}' is {given.simpleString()}; it must be {wanted}.")
