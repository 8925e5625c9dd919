"""Protobuf in Spark: the types are those of Spark's own `from_protobuf`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ottla.client.errors import SerializationError
from ottla.pipeline.schemas.column_type import ColumnType, Convert

_TIMESTAMP: Final = "google.protobuf.Timestamp"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UINT64: Final = ColumnType(DecimalType(20, 0), Decimal, int)
_SCALARS: Final[Mapping[int, DataType]] = {
    FieldDescriptor.CPPTYPE_INT32: IntegerType(),
    FieldDescriptor.CPPTYPE_INT64: LongType(),
    FieldDescriptor.CPPTYPE_UINT32: LongType(),
    FieldDescriptor.CPPTYPE_DOUBLE: DoubleType(),
    FieldDescriptor.CPPTYPE_FLOAT: FloatType(),
    FieldDescriptor.CPPTYPE_BOOL: BooleanType(),
}


def protobuf_column(descriptor: Any) -> ColumnType:
    """Return the column of a message. A field that can be absent, and is, is null."""
    return _message(descriptor, frozenset())


def _message(descriptor: Any, around: frozenset[str]) -> ColumnType:
    if descriptor.full_name == _TIMESTAMP:
        return ColumnType(TimestampType(), lambda message: message.ToDatetime(UTC), _timestamp)
    if descriptor.full_name in around:
        # A message that contains itself has no end.
        return ColumnType(StringType(), _json, _refused)
    inside = around | {descriptor.full_name}
    columns = {field.name: (field, _field(field, inside)) for field in descriptor.fields}
    data_type = StructType([StructField(name, column.data_type) for name, (_, column) in columns.items()])

    def to_row(message: Any) -> dict[str, Any]:
        row: dict[str, Any] = {}
        for name, (field, column) in columns.items():
            if field.has_presence and not message.HasField(name):
                row[name] = None
            else:
                value = getattr(message, name)
                row[name] = value if column.to_row is None else column.to_row(value)
        return row

    def from_row(row: dict[str, Any]) -> dict[str, Any]:
        if unknown := row.keys() - columns.keys():
            raise SerializationError(f"{descriptor.full_name} has no field {', '.join(sorted(unknown))}")
        message: dict[str, Any] = {}
        for name, value in row.items():
            if value is not None:
                convert = columns[name][1].from_row
                message[name] = value if convert is None else convert(value)
        return message

    return ColumnType(data_type, to_row, from_row)


def _field(field: Any, around: frozenset[str]) -> ColumnType:
    if not field.is_repeated:
        return _single(field, around)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, value = (_single(field.message_type.fields_by_name[name], around) for name in ("key", "value"))
        to_key, to_value = key.to_row or _same, value.to_row or _same
        from_key, from_value = key.from_row or _same, value.from_row or _same
        return ColumnType(
            MapType(key.data_type, value.data_type),
            lambda items: [(to_key(name), to_value(items[name])) for name in items],
            lambda items: {from_key(name): from_value(each) for name, each in items},
        )
    element = _single(field, around)
    to_row, from_row = element.to_row or _same, element.from_row or _same
    return ColumnType(
        ArrayType(element.data_type),
        lambda values: [to_row(value) for value in values],
        lambda values: [from_row(value) for value in values],
    )


def _single(field: Any, around: frozenset[str]) -> ColumnType:
    if field.message_type is not None:
        return _message(field.message_type, around)
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return ColumnType(StringType(), lambda number: names.get(number, str(number)))
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return ColumnType(BinaryType() if field.type == FieldDescriptor.TYPE_BYTES else StringType())
    if field.cpp_type == FieldDescriptor.CPPTYPE_UINT64:
        return _UINT64
    return ColumnType(_SCALARS[field.cpp_type])


def _timestamp(moment: datetime) -> dict[str, int]:
    since = moment.astimezone(UTC) - _EPOCH
    return {"seconds": since.days * 86_400 + since.seconds, "nanos": since.microseconds * 1000}


def _json(message: Any) -> str:
    return str(json_format.MessageToJson(message, preserving_proto_field_name=True, indent=None))


def _refused(_: Any) -> Any:
    raise SerializationError("a message that contains itself can be read, but not written")


_same: Convert = lambda value: value  # noqa: E731 - a value among others
