"""Avro in Spark: the types are those of Spark's own `from_avro`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import time
from typing import Any, Final

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NullType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from ottla.pipeline.schemas.column_type import ColumnType, array, json_text, mapping, struct

_PRIMITIVES: Final[Mapping[str, DataType]] = {
    "null": NullType(),
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "fixed": BinaryType(),
    "string": StringType(),
    "enum": StringType(),
}
_SECOND_US: Final = 1_000_000


def _microseconds(of_day: time) -> int:
    return ((of_day.hour * 60 + of_day.minute) * 60 + of_day.second) * _SECOND_US + of_day.microsecond


_LOGICAL: Final[Mapping[str, ColumnType]] = {
    "date": ColumnType(DateType()),
    "timestamp-millis": ColumnType(TimestampType()),
    "timestamp-micros": ColumnType(TimestampType()),
    "local-timestamp-millis": ColumnType(TimestampNTZType()),
    "local-timestamp-micros": ColumnType(TimestampNTZType()),
    # Spark's own functions show the numbers, too.
    "time-millis": ColumnType(IntegerType(), lambda of_day: _microseconds(of_day) // 1000),
    "time-micros": ColumnType(LongType(), _microseconds),
    "uuid": ColumnType(StringType(), str),
}
# Numbers of different sizes share the larger type.
_WIDER: Final = {frozenset({"int", "long"}): LongType(), frozenset({"float", "double"}): DoubleType()}


def avro_column(schema: Any) -> ColumnType:
    """Return the column of a schema, as fastavro has parsed it."""
    named = dict(schema.get("__named_schemas", {})) if isinstance(schema, dict) else {}
    return _column(schema, named, frozenset())


def _column(schema: Any, named: dict[str, Any], around: frozenset[str]) -> ColumnType:
    if isinstance(schema, list):
        return _union(schema, named, around)
    if isinstance(schema, str):
        if schema in _PRIMITIVES:
            return ColumnType(_PRIMITIVES[schema])
        # A type that contains itself has no end.
        return json_text() if schema in around else _column(named[schema], named, around)
    kind = schema["type"]
    if isinstance(kind, dict | list):
        return _column(kind, named, around)
    logical = schema.get("logicalType")
    if logical == "decimal" and kind in ("bytes", "fixed"):
        return ColumnType(DecimalType(schema["precision"], schema.get("scale", 0)))
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    made: dict[str, Callable[[], ColumnType]] = {
        "record": lambda: _record(schema, named, around),
        "error": lambda: _record(schema, named, around),
        "array": lambda: array(_column(schema["items"], named, around)),
        "map": lambda: mapping(_column(schema["values"], named, around)),
    }
    if "name" in schema:
        named.setdefault(schema["name"], schema)
    return made[kind]() if kind in made else _column(kind, named, around)


def _record(schema: Any, named: dict[str, Any], around: frozenset[str]) -> ColumnType:
    inside = around | {schema["name"]}
    return struct([(field["name"], _column(field["type"], named, inside)) for field in schema["fields"]])


def _union(branches: list[Any], named: dict[str, Any], around: frozenset[str]) -> ColumnType:
    values = [branch for branch in branches if branch != "null"]
    if len(values) == 1:
        return _column(values[0], named, around)
    kinds = frozenset(branch if isinstance(branch, str) else str(branch.get("type")) for branch in values)
    return ColumnType(_WIDER[kinds]) if kinds in _WIDER else json_text()
