"""JSON with a JSON Schema in Spark: objects with properties are structs, other objects are maps or text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql.types import BooleanType, DataType, DoubleType, LongType, NullType, StringType

from ottla.pipeline.schemas.column_type import ColumnType, array, json_text, mapping, struct

_PRIMITIVES: Final[Mapping[str, DataType]] = {
    "boolean": BooleanType(),
    "integer": LongType(),
    "null": NullType(),
    "number": DoubleType(),
    "string": StringType(),
}


def json_column(schema: Any) -> ColumnType:
    """Return the column of a JSON Schema."""
    return _column(schema, schema, frozenset())


def _column(schema: Any, root: Any, around: frozenset[str]) -> ColumnType:
    if not isinstance(schema, dict):
        return json_text()
    if (reference := schema.get("$ref")) is not None:
        if reference in around:
            return json_text()
        return _column(_pointed_at(root, reference), root, around | {reference})
    for word in ("oneOf", "anyOf"):
        if word in schema:
            choices = [each for each in schema[word] if each != {"type": "null"}]
            return _column(choices[0], root, around) if len(choices) == 1 else json_text()
    kinds = schema.get("type")
    if isinstance(kinds, list):
        kinds = [kind for kind in kinds if kind != "null"]
    kind = kinds[0] if isinstance(kinds, list) and len(kinds) == 1 else kinds
    if not isinstance(kind, str):
        is_number = isinstance(kind, list) and set(kind) == {"integer", "number"}
        return ColumnType(DoubleType(), float) if is_number else json_text()
    if kind == "array" and isinstance(schema.get("items"), dict):
        return array(_column(schema["items"], root, around))
    if kind == "object" and schema.get("properties"):
        fields = [(name, _column(each, root, around)) for name, each in schema["properties"].items()]
        return struct(fields, omits_nulls=True)
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return mapping(_column(schema["additionalProperties"], root, around))
    if kind == "number":
        # JSON may have 1 where it means 1.0.
        return ColumnType(DoubleType(), float)
    return ColumnType(_PRIMITIVES[kind]) if kind in _PRIMITIVES else json_text()


def _pointed_at(root: Any, reference: str) -> Any:
    """Return what a reference inside the schema means; None for one that leads elsewhere."""
    found = root
    if not reference.startswith("#"):
        return None
    for part in reference.removeprefix("#").split("/")[1:]:
        found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return found
