"""Compiles a declaration into a decoder: one Python function per message class and version.

The function looks as if written by hand. Adjacent fixed-size fields, together with the length prefix or tag count after
them, are read by one precompiled `struct` call. Nested structs are inlined as loops. Fields that the version lacks cost
nothing. For a one-partition Produce request of version 7:

    request.acks, request.timeout_ms, topics_size, = unpack_2(data, position)
    position += 10

Every length is checked against the bytes left before anything is allocated, and the count of an array against the
minimum size of that many items. On bad bytes such code raises `struct.error`, `IndexError` (a read past the end) or
`UnicodeDecodeError`; `codec.decode` turns them into DecodeError.

An item of two bytes becomes an object of a hundred, so the caller limits how many entries a message may have: the items
of all its arrays, and tagged fields that nobody knows.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, NoReturn

from ottla.protocol.errors import DecodeError
from ottla.protocol.message import Message, WireField
from ottla.protocol.primitives import (
    INT32_MAX,
    STRING_BYTES_MAX,
    UVARINT_BYTES_MAX,
    Array,
    Bytes,
    Records,
    String,
    Uuid,
    WireType,
)

Decoder = Callable[..., tuple[Any, int]]

# More entries than any frame can hold.
ENTRIES_UNLIMITED: Final = INT32_MAX


def uvarint_rest(data: memoryview, position: int, first: int) -> tuple[int, int]:
    """Read the rest of an unsigned varint; `first` is its first byte, which has the high bit set."""
    value = first & 0x7F
    for shift in range(7, 7 * UVARINT_BYTES_MAX, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                raise DecodeError(f"varint {value} is out of range")
            return value, position
    raise DecodeError(f"varint is longer than {UVARINT_BYTES_MAX} bytes")


def long_string_size(data: memoryview, position: int, first: int) -> tuple[int, int]:
    """Read the rest of the length of a string of 127 bytes or more, plus one."""
    size, position = uvarint_rest(data, position, first)
    if size > STRING_BYTES_MAX + 1:
        raise DecodeError(f"a string of {size - 1} bytes is longer than {STRING_BYTES_MAX}")
    return size, position


def read_uvarint(data: memoryview, position: int) -> tuple[int, int]:
    """Read an unsigned varint; return it and the position after it."""
    first = data[position]
    return uvarint_rest(data, position + 1, first) if first > 0x7F else (first, position + 1)


def next_tag(data: memoryview, position: int, last: int) -> tuple[int, int, int]:
    """Read the start of a tagged field; return its tag, and where its payload begins and ends."""
    tag, position = read_uvarint(data, position)
    size, position = read_uvarint(data, position)
    if tag <= last:
        raise DecodeError(f"tag {tag} after tag {last}")
    if position + size > len(data):
        raise DecodeError(f"tag {tag} claims {size} bytes, {len(data) - position} are left")
    return tag, position, position + size


def skip_tags(data: memoryview, position: int, count: int, left: int) -> tuple[int, int]:
    """Skip a tagged section without known tags, with `count` as its first byte; return position and entries left."""
    if count > 0x7F:
        count, position = uvarint_rest(data, position, count)
    left -= count
    if left < 0:
        too_many("tagged fields")
    last = -1
    for _ in range(count):
        last, _begin, position = next_tag(data, position, last)
    return position, left


def bad_length(name: str, size: int, left: int) -> NoReturn:
    """Raise DecodeError for a length or count that is negative, or too large for the bytes left."""
    raise DecodeError(f"{name}: null is not allowed" if size < 0 else f"{name}: {size} is more than {left} bytes hold")


def too_many(name: str) -> NoReturn:
    """Raise DecodeError for a message with more entries than its receiver allows."""
    raise DecodeError(f"{name}: the message has more entries than this side allows")


class _Source:
    """The source text of one decoder while it is generated."""

    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.lines: list[str] = []
        self.indent = 1
        self.names: dict[str, Any] = {
            "uvarint_rest": uvarint_rest,
            "next_tag": next_tag,
            "skip_tags": skip_tags,
            "long_string_size": long_string_size,
            "too_many": too_many,
            "bad_length": bad_length,
            "new": object.__new__,
            "unpack_from": struct.unpack_from,
        }
        # Fixed-size values for the next struct call: (struct code, variable).
        self.run: list[tuple[str, str]] = []
        self.counter = 0

    def emit(self, line: str) -> None:
        self.lines.append("    " * self.indent + line)

    def variable(self, name: str) -> str:
        self.counter += 1
        return f"{name}_{self.counter}"

    def bind(self, name: str, value: Any) -> str:
        bound = self.variable(name)
        self.names[bound] = value
        return bound

    def flush(self) -> None:
        if not self.run:
            return
        if len(self.run) == 1 and self.run[0][0] == "B":
            self.emit(f"{self.run[0][1]} = data[position]")
            self.emit("position += 1")
            self.run.clear()
            return
        layout = struct.Struct(">" + "".join(code for code, _ in self.run))
        unpack = self.bind("unpack", layout.unpack_from)
        self.emit(f"{', '.join(name for _, name in self.run)}, = {unpack}(data, position)")
        self.emit(f"position += {layout.size}")
        self.run.clear()

    def message(self, cls: type[Message], target: str) -> None:
        """Emit code that reads a struct into a new object.

        `__new__` and one assignment per slot take less than half the time of `__init__`.
        """
        made = self.variable(cls.__name__.lower())
        self.emit(f"{made} = new({self.bind(cls.__name__, cls)})")
        tagged: list[WireField] = []
        for field in cls.wire_fields:
            if self.version not in field.versions:
                self.absent(field, f"{made}.{field.name}")
            elif field.tag is None:
                nullable = self.version in field.nullable
                self.value(f"{made}.{field.name}", field.name, field.type, nullable, classic=field.classic)
            else:
                tagged.append(field)
        if self.flexible:
            self.tags(made, tagged)
        self.flush()
        self.emit(f"{target} = {made}")

    def absent(self, field: WireField, target: str) -> None:
        value = field.absent
        literal = value is None or isinstance(value, (bool, int, str, bytes, list))
        self.emit(f"{target} = {value!r}" if literal else f"{target} = {self.bind('absent', value)}")

    def tags(self, made: str, tagged: list[WireField]) -> None:
        count = self.variable("tags")
        self.run.append(("B", count))
        self.flush()
        if not tagged:
            self.emit(f"if {count}: position, left = skip_tags(data, position, {count}, left)")
            return
        for field in tagged:
            self.absent(field, f"{made}.{field.name}")
        self.emit(f"if {count}:")
        self.indent += 1
        self.emit(f"if {count} > 127: {count}, position = uvarint_rest(data, position, {count})")
        self.emit(f"left -= {count}")
        self.emit("if left < 0: too_many('tagged fields')")
        tag, end = self.variable("tag"), self.variable("end")
        self.emit(f"{tag} = -1")
        self.emit(f"for _ in range({count}):")
        self.indent += 1
        self.emit(f"{tag}, position, {end} = next_tag(data, position, {tag})")
        for field in tagged:
            self.emit(f"if {tag} == {field.tag}:")
            self.indent += 1
            nullable = self.version in field.nullable
            self.value(f"{made}.{field.name}", field.name, field.type, nullable, tagged=True)
            self.flush()
            self.emit(f"if position != {end}: bad_length({field.name!r}, {end} - position, 0)")
            self.emit("continue")
            self.indent -= 1
        self.emit(f"position = {end}")
        self.indent -= 2

    def value(
        self, target: str, name: str, wire_type: Any, nullable: bool, *, classic: bool = False, tagged: bool = False
    ) -> None:
        """Emit code that reads one value into `target`, which is set after the next flush."""
        if isinstance(wire_type, WireType) and wire_type.code:
            self.run.append((wire_type.code, target))
            return
        if isinstance(wire_type, type):
            if nullable:
                self.nullable_struct(target, wire_type, tagged)
            else:
                self.message(wire_type, target)
            return
        compact = self.flexible and not classic
        size = self.variable(f"{name}_size")
        self.run.append(("B" if compact else "h" if wire_type is String else "i", size))
        self.flush()
        if compact:
            read_rest = "long_string_size" if wire_type is String else "uvarint_rest"
            self.emit(f"if {size} > 127: {size}, position = {read_rest}(data, position, {size})")
            self.emit(f"{size} -= 1")
        if nullable:
            self.emit(f"if {size} < 0: {target} = None")
            self.emit("else:")
            self.indent += 1
        content = self.array if isinstance(wire_type, Array) else self.blob
        content(target, name, size, wire_type, f"{size} < 0 or " if not nullable else "")
        if nullable:
            self.indent -= 1

    def nullable_struct(self, target: str, cls: type[Message], tagged: bool) -> None:
        marker = self.variable("marker")
        self.run.append(("B" if tagged else "b", marker))
        self.flush()
        if tagged:
            self.emit(f"if {marker} > 127: {marker}, position = uvarint_rest(data, position, {marker})")
        self.emit(f"if {marker} {'== 0' if tagged else '< 0'}: {target} = None")
        self.emit("else:")
        self.indent += 1
        self.message(cls, target)
        self.indent -= 1

    def blob(self, target: str, name: str, size: str, wire_type: WireType, negative: str) -> None:
        end = self.variable("end")
        self.emit(f"{end} = position + {size}")
        self.emit(f"if {negative}{end} > total: bad_length({name!r}, {size}, total - position)")
        content = {
            String: f"str(data[position:{end}], 'utf-8')",
            Bytes: f"data[position:{end}].tobytes()",
            Records: f"data[position:{end}]",
        }[wire_type]
        self.emit(f"{target} = {content}")
        self.emit(f"position = {end}")

    def array(self, target: str, name: str, count: str, wire_type: Array, negative: str) -> None:
        item = wire_type.item
        least = bytes_min(item, self.version, self.flexible)
        self.emit(f"if {negative}{count} * {least} > total - position: bad_length({name!r}, {count}, total - position)")
        self.emit(f"left -= {count}")
        self.emit(f"if left < 0: too_many({name!r})")
        if isinstance(item, WireType) and item.code and item is not Uuid:
            self.emit(f"{target} = list(unpack_from(f'>{{{count}}}{item.code}', data, position))")
            self.emit(f"position += {count} * {least}")
            return
        items, element = self.variable(name), self.variable("item")
        self.emit(f"{target} = {items} = []")
        self.emit(f"for _ in range({count}):")
        self.indent += 1
        self.value(element, name, item, False)
        self.flush()
        self.emit(f"{items}.append({element})")
        self.indent -= 1


def bytes_min(wire_type: Any, version: int, flexible: bool) -> int:
    """Return the minimum size in bytes of a value of this type in a version; at least 1."""
    if isinstance(wire_type, Array):
        return 1 if flexible else 4
    if isinstance(wire_type, WireType):
        return wire_type.bytes_min if wire_type.code or flexible else 2 if wire_type is String else 4
    total = int(flexible)
    for field in wire_type.wire_fields:
        if version in field.versions and field.tag is None:
            struct_or_null = isinstance(field.type, type) and version in field.nullable
            total += 1 if struct_or_null else bytes_min(field.type, version, flexible and not field.classic)
    return max(total, 1)


def compile_decoder(cls: type[Message], version: int) -> Decoder:
    """Return `decode(data, position, left) -> (message, position after it)` for one version.

    `left` is how many entries the message may have.
    """
    source = _Source(version, version in cls.flexible)
    source.message(cls, "decoded")
    source.emit("return decoded, position")
    text = f"def decode(data, position, left={ENTRIES_UNLIMITED}):\n    total = len(data)\n" + "\n".join(source.lines)
    exec(compile(text, f"<decoder of {cls.__name__} version {version}>", "exec"), source.names)  # noqa: S102 - our text
    decode: Decoder = source.names["decode"]
    return decode
