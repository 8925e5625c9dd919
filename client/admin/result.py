"""The base class of what Admin returns."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

from ottla.client.errors.kafka_error import KafkaError


class Result:
    """The base class of all results."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON types; an error becomes its name, code and text."""
        fields = dataclasses.fields(cast(Any, self))
        return {each.name: _plain(getattr(self, each.name)) for each in fields}


def _plain(value: object) -> Any:
    if isinstance(value, Result):
        return value.to_dict()
    if isinstance(value, KafkaError):
        return {"name": value.message, "code": value.errno, "message": str(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: _plain(part) for name, part in value._asdict().items()}
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return value
