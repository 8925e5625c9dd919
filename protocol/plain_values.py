"""Messages made of plain values, in any version, and what can be said of any answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from ottla.protocol.message import Message
from ottla.protocol.primitives import Array

M = TypeVar("M", bound=Message)


def message_of(cls: type[M], values: Mapping[str, Any], version: int) -> M:
    """Make a message of nested dictionaries; what the version lacks is left out, what is not given has its default."""
    made: dict[str, Any] = {}
    for field in cls.wire_fields:
        if field.name not in values or version not in field.versions:
            made[field.name] = field.absent
        else:
            made[field.name] = _value(field.type, values[field.name], version)
    return cls(**made)


def _value(wire_type: Any, value: Any, version: int) -> Any:
    if isinstance(wire_type, Array) and value is not None:
        return [_value(wire_type.item, each, version) for each in value]
    if isinstance(wire_type, type) and issubclass(wire_type, Message) and value is not None:
        return message_of(wire_type, value, version)
    return value


def error_codes(message: Message) -> set[int]:
    """Return the error codes of an answer and of its parts, at every depth."""
    found: set[int] = set()
    for field in message.wire_fields:
        value = getattr(message, field.name)
        if field.name in ("error_code", "partition_error_code"):
            found.add(value)
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, Message):
                found |= error_codes(part)
    return found
