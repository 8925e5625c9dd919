"""The rows that both sources give: the columns of Spark's own Kafka source, with the same names, types and nulls."""

from __future__ import annotations

from typing import Final

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

HEADERS: Final = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

_FIELDS: Final = [
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
]


def row_schema(with_headers: bool) -> StructType:
    """Return the schema of the rows."""
    return StructType([*_FIELDS, StructField("headers", HEADERS)] if with_headers else _FIELDS)
