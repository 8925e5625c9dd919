"""Serializers for Avro, Protobuf and JSON with a schema registry; `pip install "ottla[schema]"` has what they need."""

from ottla.client.schema.registry import SchemaRegistry
from ottla.client.schema.serializers import (
    AvroSerializer,
    JsonSchemaSerializer,
    ProtobufSerializer,
    SchemaDeserializer,
)

__all__ = ["AvroSerializer", "JsonSchemaSerializer", "ProtobufSerializer", "SchemaDeserializer", "SchemaRegistry"]
