"""Payloads in Avro; needs fastavro."""

from __future__ import annotations

from collections.abc import Iterable
from io import BytesIO
from typing import Any

import msgspec

from ottla.client.errors import SerializationError
from ottla.client.schema.registered_schema import MISSING, SchemaKind


class AvroCodec:
    """Encodes and decodes with one schema; `schema` is how fastavro has it."""

    kind: SchemaKind = "avro"

    def __init__(self, schema: str, references: Iterable[str] = ()) -> None:
        """`references` are the schemas that this one names, those that they name before them."""
        try:
            import fastavro
            from fastavro.validation import ValidationError, validate
        except ImportError:
            raise SerializationError(f"fastavro {MISSING}") from None
        self._fastavro = fastavro
        self._validate, self._validation_error = validate, ValidationError
        named: dict[str, Any] = {}
        for reference in references:
            fastavro.parse_schema(msgspec.json.decode(reference), named_schemas=named)
        self.schema = fastavro.parse_schema(msgspec.json.decode(schema), named_schemas=named)

    def encode(self, value: Any) -> bytes:
        """Return a value as bytes; SerializationError if it does not fit.

        A field that the schema does not have is refused, because its name may be misspelled.
        """
        try:
            # The writer would cut 1.5 to 1 for a long.
            self._validate(value, self.schema)
        except self._validation_error as error:
            raise SerializationError(str(error.errors[0])) from error
        output = BytesIO()
        self._fastavro.schemaless_writer(output, self.schema, value, strict_allow_default=True)
        return output.getvalue()

    def decode(self, data: bytes) -> Any:
        """Return the value."""
        return self._fastavro.schemaless_reader(BytesIO(data), self.schema, None)

    def decode_as(self, data: bytes, reader: AvroCodec) -> Any:
        """Return the value as another version of the schema has it: with its fields and defaults."""
        return self._fastavro.schemaless_reader(BytesIO(data), self.schema, reader.schema)

    def from_json(self, text: bytes) -> bytes:
        """Encode JSON."""
        return self.encode(msgspec.json.decode(text))

    def to_json(self, data: bytes) -> str:
        """Return the value as JSON, for people."""
        return msgspec.json.encode(self.decode(data), enc_hook=str).decode()
