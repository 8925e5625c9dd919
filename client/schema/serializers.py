"""Serializers and deserializers with schemas from a registry, for the options of producers and consumers.

    registry = SchemaRegistry("http://localhost:8081")
    serializer = AvroSerializer(registry, ORDER_SCHEMA, subject="orders-value")
    await serializer.load()
    Producer(value_serializer=serializer)
    Consumer("orders", value_deserializer=SchemaDeserializer(registry))

A serializer asks the registry once, in `load` or with its first value. A deserializer asks when it meets a new schema;
as an option of a consumer, it blocks for that time. `await deserializer.decode(record.value)` does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ottla.client.errors import SerializationError
from ottla.client.schema.avro import AvroCodec
from ottla.client.schema.framing import FRAME, framed, schema_id_of
from ottla.client.schema.json_schema import JsonCodec
from ottla.client.schema.protobuf import dependencies, index_of, serialized_file
from ottla.client.schema.registered_schema import RegisteredSchema, SchemaReference
from ottla.client.schema.registry import SchemaRegistry, fitting


class _Serializer:
    """What serializers have in common: a schema, and its id in the registry."""

    def __init__(
        self, registry: SchemaRegistry, subject: str, *, auto_register: bool, encode: Callable[[Any], bytes]
    ) -> None:
        self._registry = registry
        self._subject = subject
        self._auto_register = auto_register
        self._encode = encode
        self._schema_id: int | None = None

    def __call__(self, value: Any) -> bytes | None:
        """Return a value with the id of its schema; null stays null. SerializationError if it does not fit."""
        if value is None:
            return None
        schema_id = self._schema_id
        if schema_id is None:
            schema_id = self._schema_id = self._found()
        try:
            return framed(schema_id, self._encode(value))
        except SerializationError as error:
            raise SerializationError(f"the value does not fit the schema of {self._subject}: {error.detail}") from error
        except Exception as error:  # libraries raise anything for values that do not fit
            raise SerializationError(f"the value does not fit the schema of {self._subject}: {error}") from error

    async def load(self) -> int:
        """Return the id of the schema, without blocking the event loop; with auto_register it is registered."""
        if self._schema_id is None:
            self._schema_id = await asyncio.to_thread(self._found)
        return self._schema_id

    def _found(self) -> int:
        ask = self._registry.register if self._auto_register else self._registry.look_up
        return ask(self._subject, self._registered())

    def _registered(self) -> RegisteredSchema:
        raise NotImplementedError


class AvroSerializer(_Serializer):
    """Writes Avro: values are those that fastavro takes, such as dicts for records, or `(name, value)` in a union.

    A value must fit: 1.5 is no long, and a field that the schema does not have is refused.
    """

    def __init__(self, registry: SchemaRegistry, schema: str, *, subject: str, auto_register: bool = True) -> None:
        """`subject` is where the registry keeps the versions of the schema: `TOPIC-value` or `TOPIC-key`."""
        super().__init__(registry, subject, auto_register=auto_register, encode=AvroCodec(schema).encode)
        self._schema = schema

    def _registered(self) -> RegisteredSchema:
        return RegisteredSchema(self._schema)


class JsonSchemaSerializer(_Serializer):
    """Writes JSON that fits a JSON Schema: values are dicts, lists, dataclasses or structs of msgspec."""

    def __init__(self, registry: SchemaRegistry, schema: str, *, subject: str, auto_register: bool = True) -> None:
        """`subject` is where the registry keeps the versions of the schema: `TOPIC-value` or `TOPIC-key`."""
        super().__init__(registry, subject, auto_register=auto_register, encode=JsonCodec(schema).encode)
        self._schema = schema

    def _registered(self) -> RegisteredSchema:
        return RegisteredSchema(self._schema, "JSON")


class ProtobufSerializer(_Serializer):
    """Writes messages of one class that protoc has made."""

    def __init__(
        self, registry: SchemaRegistry, message_class: Any, *, subject: str, auto_register: bool = True
    ) -> None:
        """Files that the message depends on are registered as subjects under their names."""
        self._descriptor = message_class.DESCRIPTOR
        index = index_of(self._descriptor)

        def encode(value: Any) -> bytes:
            if not isinstance(value, message_class):
                raise SerializationError(f"a {type(value).__name__} is no {message_class.__name__}")
            return index + bytes(value.SerializeToString())

        super().__init__(registry, subject, auto_register=auto_register, encode=encode)

    def _registered(self) -> RegisteredSchema:
        return self._file(self._descriptor.file)

    def _file(self, file: Any) -> RegisteredSchema:
        references: tuple[SchemaReference, ...] = tuple(
            self._registry.reference(each.name, each.name, self._file(each)) for each in dependencies(file)
        )
        return RegisteredSchema(serialized_file(file), "PROTOBUF", references)


class NewestSchemaSerializer(_Serializer):
    """Writes JSON text with the newest schema of a subject, of any kind. It stays with that schema."""

    def __init__(self, registry: SchemaRegistry, *, subject: str) -> None:
        # `_found` sets how to encode, and comes before the first value.
        super().__init__(registry, subject, auto_register=False, encode=bytes)

    def _found(self) -> int:
        schema_id, codec = self._registry.newest(self._subject)
        self._encode = codec.from_json
        return schema_id


class SchemaDeserializer:
    """Reads payloads of any kind by the schema that they name: dicts for Avro and JSON, messages for Protobuf."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry

    def __call__(self, data: bytes | None) -> Any:
        """Return the value; null stays null. Blocks if the schema is new. SerializationError if it does not fit."""
        if data is None:
            return None
        schema_id = schema_id_of(data)
        return fitting(schema_id, self._registry.codec(schema_id).decode, data[FRAME.size :])

    async def decode(self, data: bytes | None) -> Any:
        """Return the same without blocking the event loop."""
        if data is None:
            return None
        schema_id = schema_id_of(data)
        return fitting(schema_id, (await self._registry.load_codec(schema_id)).decode, data[FRAME.size :])
