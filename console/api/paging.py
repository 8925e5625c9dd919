"""Lists in parts: `limit` items `after` one, sorted and filtered."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from ottla.console.problems import Problem

T = TypeVar("T")

Limit = Annotated[int, Meta(ge=1, le=1000, description="How many items to return at most.")]


class ListQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What all lists take."""

    q: Annotated[str, Meta(max_length=255, description="A part of the name, or a pattern with * and ?.")] = ""
    limit: Limit = 100
    after: Annotated[str | None, Meta(description="The `next` of the answer before.")] = None
    sort: Annotated[str | None, Meta(description="A field to sort by; - before it reverses the order.")] = None


def matching(items: Iterable[T], q: str, name: Callable[[T], str]) -> list[T]:
    """Return the items whose name has a text in it, or matches a pattern; upper and lower case are the same."""
    wanted = q.strip().lower()
    if not wanted:
        return list(items)
    if "*" in wanted or "?" in wanted:
        pattern = re.compile(fnmatch.translate(wanted.replace("[", "[[]")))
        return [each for each in items if pattern.match(name(each).lower())]
    return [each for each in items if wanted in name(each).lower()]


def ordered(items: list[T], sort: str | None, keys: dict[str, Callable[[T], Any]]) -> list[T]:
    """Sort by one of the keys; the first key is the default, and decides among equals."""
    default = next(iter(keys))
    wanted = sort or default
    is_reversed, field = wanted.startswith("-"), wanted.removeprefix("-")
    if field not in keys:
        raise Problem(400, "Unknown sort order", f"Lists are sorted by {', '.join(keys)}; - reverses.")
    items.sort(key=keys[default])
    if field != default or is_reversed:
        items.sort(key=keys[field], reverse=is_reversed)
    return items


def page(items: Sequence[T], after: str | None, limit: int, name: Callable[[T], str]) -> tuple[Sequence[T], str | None]:
    """Return the part after a name, and the name to ask for the next part with; None at the end."""
    start = 0
    if after is not None:
        position = next((at for at, each in enumerate(items) if name(each) == after), None)
        if position is None:
            raise Problem(
                410, "The list has changed", f"{after[:200]} is no longer in it.", advice="Start from the beginning."
            )
        start = position + 1
    part = items[start : start + limit]
    return part, name(part[-1]) if start + limit < len(items) and part else None
