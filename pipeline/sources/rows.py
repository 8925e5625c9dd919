"""The rows that both sources give: the columns of Spark's own Kafka source, with the same names, types and nulls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ottla.client.records.arrow_columns import ArrowColumns, read_arrow
from ottla.client.records.record_fields import Integers
from ottla.pipeline.sources.errors import SourceOptionError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.records import RecordBatch

# Arrays and batches of pyarrow, which has no types of its own.
Array: TypeAlias = Any
Rows: TypeAlias = Any

_SPARK_HEADERS: Final = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
_SPARK_FIELDS: Final = [
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
]
_TIMESTAMP: Final = pa.timestamp("us", "UTC")
_HEADERS: Final = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
_FIELDS: Final = [
    ("key", pa.binary()),
    ("value", pa.binary()),
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("timestamp", _TIMESTAMP),
    ("timestampType", pa.int32()),
]
# Beyond this a time has no place in Spark, which counts microseconds.
_TIMESTAMP_MS_MAX: Final = ((1 << 63) - 1) // 1000


def row_schema(with_headers: bool) -> StructType:
    """Return the schema of the rows, as Spark has it."""
    return StructType([*_SPARK_FIELDS, StructField("headers", _SPARK_HEADERS)] if with_headers else _SPARK_FIELDS)


def check_schema(given: StructType, with_headers: bool) -> None:
    """Refuse a schema that the job sets by itself; SourceOptionError."""
    wanted = row_schema(with_headers)
    if [(field.name, field.dataType) for field in given] != [(field.name, field.dataType) for field in wanted]:
        raise SourceOptionError(
            "The source has a fixed schema: remove .schema(...), and convert key and value with functions of Spark."
        )


class RowMaker:
    """Makes Arrow record batches of the records of one partition."""

    def __init__(self, partition: TopicPartition, with_headers: bool) -> None:
        self._partition = partition
        self._with_headers = with_headers
        self._schema = pa.schema([*_FIELDS, ("headers", _HEADERS)] if with_headers else _FIELDS)
        # Columns whose rows are all the same, as long as was needed so far; by timestamp type.
        self._constants: dict[int, tuple[Array, Array, Array]] = {}

    def rows(self, batches: Iterable[RecordBatch], begin_offset: int, end_offset: int) -> Iterator[Rows]:
        """Yield the records from `begin_offset` up to, not including, `end_offset`; CorruptBatchError for bad ones."""
        for timestamp_type, same in groupby(batches, lambda batch: int(batch.timestamp_type)):
            for columns in read_arrow(same, begin_offset, end_offset):
                yield self._made(columns, timestamp_type)

    def _made(self, columns: ArrowColumns, timestamp_type: int) -> Rows:
        count = len(columns)
        topic, partition, timestamp_types = self._constant(timestamp_type, count)
        arrays = [
            columns.keys,
            columns.values,
            topic,
            partition,
            _numbers(columns.offsets, pa.int64()),
            _timestamps(columns),
            timestamp_types,
        ]
        if self._with_headers:
            arrays.append(_headers(columns))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _constant(self, timestamp_type: int, count: int) -> tuple[Array, Array, Array]:
        known = self._constants.get(timestamp_type)
        if known is None or len(known[0]) < count:
            size = 1 << (count - 1).bit_length() if count else 1
            known = self._constants[timestamp_type] = (
                pa.repeat(pa.scalar(self._partition.topic), size),
                pa.repeat(pa.scalar(self._partition.partition, pa.int32()), size),
                pa.repeat(pa.scalar(timestamp_type, pa.int32()), size),
            )
        topic, partition, timestamp_types = (array.slice(0, count) for array in known)
        return topic, partition, timestamp_types


def _timestamps(columns: ArrowColumns) -> Array:
    """Return the times; null for one that Spark cannot hold."""
    milliseconds = columns.timestamps_ms
    outside = (milliseconds > _TIMESTAMP_MS_MAX) | (milliseconds < -_TIMESTAMP_MS_MAX)
    times = _numbers(milliseconds * 1000, _TIMESTAMP)
    return pc.if_else(pa.array(~outside), times, None) if outside.any() else times


def _numbers(array: Integers, arrow_type: Any) -> Array:
    """Return numbers as an Arrow array, without a copy and without the pandas that pa.array would load."""
    return pa.Array.from_buffers(arrow_type, len(array), [None, pa.py_buffer(np.ascontiguousarray(array))])


def _headers(columns: ArrowColumns) -> Array:
    """Return the headers; null for a record without any, as in Spark's own source."""
    if not columns.headers_by_row:
        return pa.nulls(len(columns), _HEADERS)
    headers = columns.headers
    lengths = np.diff(np.asarray(headers.offsets))
    return pa.ListArray.from_arrays(headers.offsets, headers.values, mask=pa.array(lengths == 0)).cast(_HEADERS)
