"""A schema as a registry has it."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

SchemaKind = Literal["avro", "json", "protobuf"]
# What to do if a library is missing.
MISSING: Final = "is not installed: pip install 'ottla[schema]'"


class SchemaReference(msgspec.Struct, frozen=True):
    """Another schema that this one uses: its name here, and where the registry has it."""

    name: str
    subject: str
    version: int


class RegisteredSchema(msgspec.Struct, frozen=True):
    """The text of a schema, or a serialized Protobuf file in base64, and what it refers to."""

    schema: str
    schemaType: str = "AVRO"  # noqa: N815 - the registry's name
    references: tuple[SchemaReference, ...] = ()
