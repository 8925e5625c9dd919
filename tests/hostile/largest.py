"""The largest requests that fit in a frame, derived from the declarations, as bytes.

Every list and every text of a request is filled in turn, and all other fields are as small as they can be:

    duplicates    as many entries as fit, all alike
    names         as many entries as fit, each with another name
    texts         entries whose first text is as long as Kafka allows, as many as fit
    one text      a single text that fills the frame, which only the flexible encoding can announce
    tags          unknown tagged fields, as many as fit

Bytes are put together here and not by the encoder: objects for a hundred megabytes would take minutes.
"""

from __future__ import annotations

import functools
import itertools
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from ottla.protocol.api import Api
from ottla.protocol.codec import encode_parts
from ottla.protocol.message import Message, WireField
from ottla.protocol.messages.headers import RequestHeader
from ottla.protocol.primitives import INT32_MAX, Array, String, WireType, encode_uvarint

TEXT_BYTES_MAX = 32_767
_ALPHABET = b"abcdefghijklmnopqrstuvwxyz0123456789"
_NAME_BYTES = 4
# Where a name goes; no other byte of an entry is like these.
_PLACE = b"\x00<->"
_FIRST_TAG = 1000


class Shape(NamedTuple):
    """What fills a request: a kind of content, at the place that a path of field names leads to."""

    kind: str
    path: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kind} in {'.'.join(self.path) or 'the message'}"


class _Writer:
    """Writes the values of one version. Numbers have all bits of `fill`, so they are 0 or -1."""

    def __init__(self, version: int, *, flexible: bool, fill: int) -> None:
        self.version = version
        self.flexible = flexible
        self.fill = fill
        self.entries_max = INT32_MAX

    def length(self, wire_type: Any, count: int, *, classic: bool = False) -> bytes:
        """Write the length of a text, or the count of a list."""
        if self.flexible and not classic:
            return encode_uvarint(count + 1)
        return struct.pack(">h" if wire_type is String else ">i", count)

    def smallest(self, wire_type: Any, *, classic: bool = False) -> bytes:
        """Write the smallest value of a type."""
        if isinstance(wire_type, WireType) and wire_type.code:
            # A boolean has one valid byte for each value.
            return b"\x00" if wire_type.code == "?" else bytes([self.fill]) * struct.calcsize(">" + wire_type.code)
        if isinstance(wire_type, (WireType, Array)):
            return self.length(wire_type, 0, classic=classic)
        return self.struct(wire_type)

    def struct(self, cls: type[Message], **contents: bytes) -> bytes:
        """Write a struct with some of its fields given as bytes; `_tags` is its tagged section."""
        parts = [
            contents.get(field.name) or self._field(field)
            for field in cls.wire_fields
            if self.version in field.versions and field.tag is None
        ]
        if self.flexible:
            parts.append(contents.get("_tags", b"\x00"))
        return b"".join(parts)

    def _field(self, field: WireField) -> bytes:
        if self.version in field.nullable and isinstance(field.type, type):
            return b"\xff"
        return self.smallest(field.type, classic=field.classic)


def shapes(api: Api, version: int) -> list[Shape]:
    """Return all shapes that a request of a version can have."""
    cls = api.request
    is_flexible = version in cls.flexible
    found = [Shape("tags", ())] if is_flexible else []
    for path, field in _fillable(cls, version, ()):
        if not isinstance(field.type, Array):
            found += [Shape("one text", path)] if is_flexible and not field.classic else []
            continue
        item = field.type.item
        found.append(Shape("duplicates", path))
        if item is String or _text_of(item, version) is not None:
            found += [Shape("names", path), Shape("texts", path)]
        if is_flexible and isinstance(item, type):
            found.append(Shape("tags", path))
    return found


def largest(
    api: Api, version: int, shape: Shape, bytes_max: int, *, entries_max: int = INT32_MAX, fill: int = 0
) -> bytes:
    """Return the largest request of a shape, header included, that a frame of `bytes_max` bytes can hold.

    All its lists together have at most `entries_max` entries.
    """
    writer = _Writer(version, flexible=version in api.request.flexible, fill=fill)
    writer.entries_max = entries_max - len(shape.path)
    header = RequestHeader(request_api_key=api, request_api_version=version, correlation_id=1, client_id="hostile")
    start = b"".join(encode_parts(header, api.request_header_version(version)))
    around = len(start) + len(_written(writer, api.request, shape, shape.path, 0))
    # The lengths around the content take some bytes more than those around nothing.
    return start + _written(writer, api.request, shape, shape.path, bytes_max - around - 32)


def _fillable(cls: type[Message], version: int, above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], WireField]]:
    """Yield the lists and texts of a message, at every depth."""
    for field in cls.wire_fields:
        if version not in field.versions:
            continue
        path = (*above, field.name)
        if isinstance(field.type, Array) or field.type is String:
            yield path, field
        inner = field.type.item if isinstance(field.type, Array) else field.type
        if isinstance(inner, type):
            yield from _fillable(inner, version, path)


def _text_of(cls: Any, version: int) -> str | None:
    """Return the first field of a struct that is a text."""
    if not isinstance(cls, type):
        return None
    fields: tuple[WireField, ...] = getattr(cls, "wire_fields", ())
    texts = (each.name for each in fields if each.type is String and each.tag is None and version in each.versions)
    return next(texts, None)


def _written(writer: _Writer, cls: type[Message], shape: Shape, path: tuple[str, ...], room: int) -> bytes:
    """Write a struct whose content is at the end of a path."""
    if not path:
        return writer.struct(cls, _tags=_tags(room, writer.entries_max)) if shape.kind == "tags" else writer.struct(cls)
    field = next(each for each in cls.wire_fields if each.name == path[0])
    if len(path) == 1 and not (shape.kind == "tags" and isinstance(field.type, Array)):
        value = _content(writer, field.type, shape.kind, room)
    elif isinstance(field.type, Array):
        value = writer.length(field.type, 1) + _written(writer, field.type.item, shape, path[1:], room)
    else:
        marker = b"\x01" if writer.version in field.nullable else b""
        value = marker + _written(writer, field.type, shape, path[1:], room)
    if field.tag is None:
        return writer.struct(cls, **{field.name: value})
    return writer.struct(cls, _tags=b"\x01" + encode_uvarint(field.tag) + encode_uvarint(len(value)) + value)


def _content(writer: _Writer, wire_type: Any, kind: str, room: int) -> bytes:
    if wire_type is String:
        size = max(room, 0)
        return writer.length(String, size) + b"x" * size
    item = wire_type.item
    if kind == "duplicates":
        one = writer.smallest(item)
        count = min(max(room, 0) // len(one), writer.entries_max)
        return writer.length(wire_type, count) + one * count
    text_bytes = TEXT_BYTES_MAX if kind == "texts" else _NAME_BYTES
    # Entries differ in the end of their text alone, so all is written once, and names are put in.
    before, after = _item(writer, item, b"x" * (text_bytes - _NAME_BYTES) + _PLACE).split(_PLACE)
    count = min(max(room, 0) // (len(before) + _NAME_BYTES + len(after)), writer.entries_max)
    entries = before + (after + before).join(_names(count)) + after if count else b""
    return writer.length(wire_type, count) + entries


def _item(writer: _Writer, item: Any, text: bytes) -> bytes:
    value = writer.length(String, len(text)) + text
    if item is String:
        return value
    name = _text_of(item, writer.version)
    assert name is not None
    return writer.struct(item, **{name: value})


@functools.cache
def _names(count: int) -> list[bytes]:
    """Return names of four letters and digits, all different, up to a million and more."""
    letters = itertools.product(_ALPHABET, repeat=_NAME_BYTES)
    return [bytes(name) for name in itertools.islice(letters, count)]


def _tags(room: int, entries_max: int) -> bytes:
    """Write a tagged section of empty fields that nobody knows."""
    tag_bytes = len(encode_uvarint(_FIRST_TAG + max(room, 0))) + 1
    return _tagged_section(min(max(room, 0) // tag_bytes, entries_max))


@functools.cache
def _tagged_section(count: int) -> bytes:
    tags = range(_FIRST_TAG, _FIRST_TAG + count)
    return encode_uvarint(count) + b"".join(encode_uvarint(tag) + b"\x00" for tag in tags)
