"""Numbers in JSON. JavaScript rounds integers above 2**53, so 64-bit numbers are text."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

Long = Annotated[str, Meta(description="A 64-bit integer as decimal text.", pattern="^-?[0-9]+$")]


def long(value: int) -> str:
    """Return a 64-bit integer for JSON."""
    return str(value)


def maybe_long(value: int | None) -> str | None:
    """Return a 64-bit integer for JSON, or None."""
    return None if value is None else str(value)
