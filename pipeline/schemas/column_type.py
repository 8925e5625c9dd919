"""How a part of a schema looks in Spark: its type, and what its values need on their way there and back.

Values are plain Python, as Arrow takes and gives them: dicts for structs, lists of pairs for maps. Most need no change
at all, and are not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

Convert = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A type of Spark, and the changes to a value that is not null; None if there is none to make."""

    data_type: DataType
    # From the value that a codec decodes.
    to_row: Convert | None = None
    # To the value that a codec encodes.
    from_row: Convert | None = None


def struct(fields: Sequence[tuple[str, ColumnType]], *, omits_nulls: bool = False) -> ColumnType:
    """Return a struct; with `omits_nulls`, a field that is null is left out when it is written."""
    data_type = StructType([StructField(name, field.data_type) for name, field in fields])
    to_row = {name: field.to_row for name, field in fields if field.to_row is not None}
    from_row = {name: field.from_row for name, field in fields if field.from_row is not None}
    return ColumnType(data_type, _on_fields(to_row), _without_nulls(_on_fields(from_row), omits_nulls))


def array(element: ColumnType) -> ColumnType:
    """Return a list of these."""
    return ColumnType(ArrayType(element.data_type), _on_each(element.to_row), _on_each(element.from_row))


def mapping(value: ColumnType) -> ColumnType:
    """Return a map with text as keys."""
    to_value, from_value = _or_null(value.to_row), _or_null(value.from_row)
    return ColumnType(
        MapType(StringType(), value.data_type),
        lambda items: [(key, to_value(each)) for key, each in items.items()],
        lambda items: {key: from_value(each) for key, each in items},
    )


def json_text() -> ColumnType:
    """Return text, for what has no type in Spark: a union of several types, or a type that contains itself."""
    return ColumnType(
        StringType(),
        lambda value: msgspec.json.encode(value, enc_hook=str).decode(),
        msgspec.json.decode,
    )


def _or_null(convert: Convert | None) -> Convert:
    if convert is None:
        return lambda value: value
    return lambda value: None if value is None else convert(value)


def _on_fields(converts: dict[str, Convert]) -> Convert | None:
    if not converts:
        return None

    def convert_fields(value: dict[str, Any]) -> dict[str, Any]:
        changed = dict(value)
        for name, convert in converts.items():
            if changed.get(name) is not None:
                changed[name] = convert(changed[name])
        return changed

    return convert_fields


def _without_nulls(convert: Convert | None, omits_nulls: bool) -> Convert | None:
    if not omits_nulls:
        return convert
    converted = convert or (lambda value: value)
    return lambda value: {name: each for name, each in converted(value).items() if each is not None}


def _on_each(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None
    each = _or_null(convert)
    return lambda values: [each(value) for value in values]
