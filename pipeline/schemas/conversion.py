"""Convert payloads to rows and back, for the schema of a column. Arrow carries both between Spark and us."""

from __future__ import annotations

from typing import Any, Final, Protocol, TypeAlias
from weakref import WeakKeyDictionary

import msgspec
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type

from ottla.client.errors import SerializationError
from ottla.client.schema.avro import AvroCodec
from ottla.client.schema.framing import FRAME, framed, schema_id_of
from ottla.client.schema.json_schema import JsonCodec
from ottla.client.schema.protobuf import ProtobufCodec
from ottla.client.schema.registry import PayloadCodec, SchemaRegistry
from ottla.pipeline.schemas.avro_columns import avro_column
from ottla.pipeline.schemas.column_type import ColumnType
from ottla.pipeline.schemas.json_columns import json_column

# Arrays of pyarrow, which has no types of its own.
Array: TypeAlias = Any


class Conversion(Protocol):
    """What differs between Avro, JSON and Protobuf."""

    column: ColumnType

    def decode(self, codec: PayloadCodec, payload: bytes) -> Any:
        """Return the value of a payload that was written with the schema of `codec`, in the words of this schema."""

    def encode(self, value: Any) -> bytes:
        """Return a value as a payload."""


class _AvroConversion:
    def __init__(self, codec: AvroCodec) -> None:
        self._codec = codec
        self.column = avro_column(codec.schema)

    def decode(self, codec: PayloadCodec, payload: bytes) -> Any:
        if not isinstance(codec, AvroCodec):
            raise SerializationError(f"it is {codec.kind}, not avro")
        return codec.decode(payload) if codec is self._codec else codec.decode_as(payload, self._codec)

    def encode(self, value: Any) -> bytes:
        return self._codec.encode(value)


class _JsonConversion:
    def __init__(self, codec: JsonCodec) -> None:
        self._codec = codec
        self.column = json_column(msgspec.json.decode(codec.schema))

    def decode(self, codec: PayloadCodec, payload: bytes) -> Any:
        if not isinstance(codec, JsonCodec):
            raise SerializationError(f"it is {codec.kind}, not json")
        return codec.decode(payload)

    def encode(self, value: Any) -> bytes:
        return self._codec.encode(value)


class _ProtobufConversion:
    def __init__(self, codec: ProtobufCodec) -> None:
        # protobuf is in the extra `schema`, and nothing else needs it.
        from ottla.pipeline.schemas.protobuf_columns import protobuf_column

        self._codec = codec
        self._name = codec.message_class().DESCRIPTOR.full_name
        self.column = protobuf_column(codec.message_class().DESCRIPTOR)

    def decode(self, codec: PayloadCodec, payload: bytes) -> Any:
        if not isinstance(codec, ProtobufCodec):
            raise SerializationError(f"it is {codec.kind}, not protobuf")
        message = codec.decode(payload)
        if (found := message.DESCRIPTOR.full_name) != self._name:
            raise SerializationError(f"it is the message {found}, not {self._name}")
        if codec is self._codec:
            return message
        # Fields that the newer or older version lacks are skipped, or have their default.
        return self._codec.message_class().FromString(message.SerializeToString())

    def encode(self, value: Any) -> bytes:
        return self._codec.encode_fields(value)


_known: Final[WeakKeyDictionary[PayloadCodec, Conversion]] = WeakKeyDictionary()


def conversion(codec: PayloadCodec) -> Conversion:
    """Return the conversion for a schema, which is worked out once for a codec."""
    known = _known.get(codec)
    if known is None:
        known = _known[codec] = _made(codec)
    return known


def _made(codec: PayloadCodec) -> Conversion:
    if isinstance(codec, AvroCodec):
        return _AvroConversion(codec)
    if isinstance(codec, JsonCodec):
        return _JsonConversion(codec)
    assert isinstance(codec, ProtobufCodec), codec
    return _ProtobufConversion(codec)


def decoded(payloads: Array, registry: SchemaRegistry, schema_id: int, *, is_strict: bool) -> Array:
    """Return payloads as rows of a schema. SerializationError for one that cannot be decoded, or null for it."""
    to_schema = conversion(registry.codec(schema_id))
    to_row = to_schema.column.to_row
    arrow_type = to_arrow_type(to_schema.column.data_type, timezone="UTC")

    def row(payload: bytes | None) -> Any:
        if payload is None:
            return None
        try:
            value = to_schema.decode(registry.codec(schema_id_of(payload)), payload[FRAME.size :])
            return value if to_row is None or value is None else to_row(value)
        except Exception as error:  # libraries raise anything for bytes that do not fit
            if is_strict:
                raise _failure("a record cannot be decoded", error) from error
            return None

    rows = [row(payload) for payload in payloads.to_pylist()]
    try:
        return pa.array(rows, arrow_type)
    except (pa.ArrowException, ValueError, TypeError) as error:
        if is_strict:
            raise _failure("a record does not fit the column", error) from error
        return pa.array([each if _fits(each, arrow_type) else None for each in rows], arrow_type)


def encoded(rows: Array, registry: SchemaRegistry, schema_id: int, subject: str) -> Array:
    """Return rows as payloads; SerializationError for one that does not fit."""
    from_schema = conversion(registry.codec(schema_id))
    from_row = from_schema.column.from_row

    def payload(row: Any) -> bytes | None:
        if row is None:
            return None
        try:
            return framed(schema_id, from_schema.encode(row if from_row is None else from_row(row)))
        except Exception as error:  # libraries raise anything for values that do not fit
            raise _failure(f"a row does not fit the schema of {subject}", error) from error

    return pa.array([payload(row) for row in rows.to_pylist()], pa.binary())


def _failure(what: str, error: Exception) -> SerializationError:
    return SerializationError(f"{what}: {error.detail if isinstance(error, SerializationError) else error}")


def _fits(value: Any, arrow_type: Any) -> bool:
    try:
        pa.array([value], arrow_type)
    except (pa.ArrowException, ValueError, TypeError):
        return False
    return True
