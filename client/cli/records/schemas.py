"""The schema registry of a command, and values that are written with its schemas."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from ottla.client.cli.terminal.errors import CommandError
from ottla.client.errors import KafkaConfigurationError, SerializationError
from ottla.client.schema.registry import SchemaRegistry
from ottla.client.schema.serializers import NewestSchemaSerializer

# Libraries put the data that they refuse into their messages.
_REASON_MAX: Final = 200


def registry_at(url: str) -> SchemaRegistry:
    """Return a client of a registry; CommandError if the URL is not valid."""
    try:
        return SchemaRegistry(url)
    except KafkaConfigurationError as error:
        raise CommandError(str(error), 2) from error


def in_one_line(reason: str) -> str:
    """Return a reason as a library gives it, fit for one line of a terminal."""
    return " ".join(reason.split())[:_REASON_MAX]


def encoder(url: str | None, subject: str) -> Callable[[bytes], bytes | None]:
    """Return what writes JSON with the newest schema of a subject; it raises CommandError for JSON that does not fit.

    CommandError if the registry cannot be used.
    """
    if url is None:
        raise CommandError(
            "--schema needs a registry: say where it is with --schema-registry URL or OTTLA_SCHEMA_REGISTRY.", 2
        )
    serializer = NewestSchemaSerializer(registry_at(url), subject=subject)
    try:
        asyncio.run(serializer.load())
    except SerializationError as error:
        raise CommandError(f"--schema {subject}: {in_one_line(error.detail)}") from error

    def encode(text: bytes) -> bytes | None:
        try:
            return serializer(text)
        except SerializationError as error:
            raise CommandError(in_one_line(error.detail)) from error

    return encode
