"""The functions on columns. Types come from the registry when a query is made; values are converted in the workers."""

from __future__ import annotations

from typing import Any, Final, Literal, cast, get_args

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import BinaryType

from ottla.client.schema.registered_schema import RegisteredSchema
from ottla.client.schema.registry import SchemaRegistry
from ottla.pipeline.schemas.conversion import conversion, decoded, encoded
from ottla.pipeline.sources.errors import SourceOptionError

Mode = Literal["FAILFAST", "PERMISSIVE"]
SchemaType = Literal["AVRO", "JSON"]
_MODES: Final = get_args(Mode)


def from_registry(
    data: Column | str, registry: SchemaRegistry | str, subject: str, *, mode: Mode = "FAILFAST"
) -> Column:
    """Decode keys or values that Confluent's serializers have written, in Avro, Protobuf or JSON.

    `registry` is the URL of a schema registry, or a SchemaRegistry with a password. The column has the type of the
    newest schema of the subject, usually `TOPIC-value` or `TOPIC-key`, when the query is made. Each record is decoded
    with the schema that it names, and then brought to this type: fields that it lacks have their default or are null.
    A record that cannot be decoded ends the query; with the mode PERMISSIVE it is null.
    """
    if mode not in _MODES:
        raise SourceOptionError(f"The mode is {mode!r}; write {' or '.join(_MODES)}.")
    known = _opened(registry)
    schema_id, codec = known.newest(subject)

    # Spark learns from the types how to call it.
    def decode(payloads: pa.Array) -> pa.Array:
        return decoded(payloads, known, schema_id, is_strict=mode == "FAILFAST")

    udf: Any = arrow_udf
    make = udf(returnType=conversion(codec).column.data_type)
    return cast(Column, make(decode)(data))


def to_registry(
    data: Column | str,
    registry: SchemaRegistry | str,
    subject: str,
    *,
    schema: str | None = None,
    schema_type: SchemaType = "AVRO",
) -> Column:
    """Encode a column as Confluent's serializers do, with the newest schema of a subject.

    `schema` is the text of a schema to register in the subject first, if it is not there yet. The fields of a struct go
    to the fields of the schema by name; Protobuf takes the first message of its file. A row that does not fit ends the
    query. Null stays null.
    """
    known = _opened(registry)
    if schema is None:
        schema_id, codec = known.newest(subject)
    else:
        schema_id = known.register(subject, RegisteredSchema(schema, schema_type))
        codec = known.codec(schema_id)
    # What cannot be written is an error here, and not in the workers.
    conversion(codec)

    def encode(rows: pa.Array) -> pa.Array:
        return encoded(rows, known, schema_id, subject)

    udf: Any = arrow_udf
    make = udf(returnType=BinaryType())
    return cast(Column, make(encode)(data))


def _opened(registry: SchemaRegistry | str) -> SchemaRegistry:
    return SchemaRegistry(registry) if isinstance(registry, str) else registry
