"""Payloads in JSON with a JSON Schema; needs jsonschema to validate them."""

from __future__ import annotations

from typing import Any

import msgspec

from ottla.client.errors import SerializationError
from ottla.client.schema.registered_schema import MISSING, SchemaKind


class JsonCodec:
    """Encodes and decodes JSON; validates only values that it encodes, because a reader has no use for a refusal."""

    kind: SchemaKind = "json"

    def __init__(self, schema: str) -> None:
        self.schema = schema
        self._validator: Any = None

    def encode(self, value: Any) -> bytes:
        """Return a value as bytes, if it fits the schema."""
        plain = msgspec.to_builtins(value)
        self._validate(plain)
        return msgspec.json.encode(plain)

    def from_json(self, text: bytes) -> bytes:
        """Return JSON as it is, so that no number is rounded, if it fits the schema."""
        self._validate(msgspec.json.decode(text))
        return text

    def _validate(self, plain: Any) -> None:
        if self._validator is None:
            try:
                from jsonschema.validators import validator_for
            except ImportError:
                raise SerializationError(f"jsonschema {MISSING}") from None
            schema = msgspec.json.decode(self.schema)
            self._validator = validator_for(schema)(schema)
        if (error := next(self._validator.iter_errors(plain), None)) is not None:
            raise SerializationError(f"{error.json_path}: {error.message}")

    def decode(self, data: bytes) -> Any:
        """Return the value."""
        return msgspec.json.decode(data)

    def to_json(self, data: bytes) -> str:
        """Return the text as it is, so that no number is rounded, if it is JSON."""
        self.decode(data)
        return data.decode()
