"""Payloads in Avro; needs fastavro."""

from __future__ import annotations

from collections.abc import Iterable
from io import BytesIO
from typing import Any

import msgspec

from ottla.client.errors import SerializationError
from ottla.client.schema.registered_schema import MISSING, SchemaKind


class AvroCodec:
    """Encodes and decodes with one schema."""

    kind: SchemaKind = "avro"

    def __init__(self, schema: str, references: Iterable[str] = ()) -> None:
        """`references` are the schemas that this one names, those that they name before them."""
        try:
            import fastavro
        except ImportError:
            raise SerializationError(f"fastavro {MISSING}") from None
        self._fastavro = fastavro
        named: dict[str, Any] = {}
        for reference in references:
            fastavro.parse_schema(msgspec.json.decode(reference), named_schemas=named)
        self._schema = fastavro.parse_schema(msgspec.json.decode(schema), named_schemas=named)

    def encode(self, value: Any) -> bytes:
        """Return a value as bytes."""
        output = BytesIO()
        self._fastavro.schemaless_writer(output, self._schema, value)
        return output.getvalue()

    def decode(self, data: bytes) -> Any:
        """Return the value."""
        return self._fastavro.schemaless_reader(BytesIO(data), self._schema, None)

    def from_json(self, text: bytes) -> bytes:
        """Encode JSON. Fields that the schema does not have are refused, because they may be misspelled."""
        from fastavro.validation import ValidationError, validate

        value = msgspec.json.decode(text)
        try:
            # The writer would cut 1.5 to 1.
            validate(value, self._schema)
        except ValidationError as error:
            raise SerializationError(str(error.errors[0])) from error
        output = BytesIO()
        self._fastavro.schemaless_writer(output, self._schema, value, strict_allow_default=True)
        return output.getvalue()

    def to_json(self, data: bytes) -> str:
        """Return the value as JSON, for people."""
        return msgspec.json.encode(self.decode(data), enc_hook=str).decode()
