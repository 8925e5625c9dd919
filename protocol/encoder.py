"""Compiles a declaration into an encoder: one Python function per message class and version.

The function appends the parts of the message to a list: packed runs of fixed-size fields, encoded strings, and the
record data as given. Records are never copied: a memoryview stays a view, and any other object with a length (such as
the broker's file slices) is left for the connection to send. On a value that does not fit, such code raises
`TypeError`, `AttributeError` or `struct.error`; `codec.encode` turns them into EncodeError.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NoReturn

from ottla.protocol.errors import EncodeError
from ottla.protocol.message import Message, WireField
from ottla.protocol.primitives import STRING_BYTES_MAX, Array, String, Uuid, WireType, encode_uvarint

Encoder = Callable[[Any, list[Any]], None]

_SMALL = {value: encode_uvarint(value) for value in range(1024)}


class _Uvarints(dict[int, bytes]):
    """The unsigned varints of lengths and counts. Small ones are looked up, which costs less than a call."""

    def __missing__(self, value: int) -> bytes:
        return encode_uvarint(value)


class _StringSizes(dict[int, bytes]):
    """The unsigned varints of the lengths of strings, plus one."""

    def __missing__(self, value: int) -> bytes:
        if value > STRING_BYTES_MAX + 1:
            raise EncodeError(f"a string of {value - 1} bytes is longer than {STRING_BYTES_MAX}")
        return encode_uvarint(value)


_uvarints = _Uvarints(_SMALL)
_string_sizes = _StringSizes(_SMALL)


def compact_string(text: str) -> bytes:
    """Return a string with the unsigned varint of its length, plus one."""
    content = text.encode()
    return _string_sizes[len(content) + 1] + content


def tagged_section(payloads: list[tuple[int, list[Any]]]) -> bytes:
    """Return the tagged section for the fields that differ from their defaults."""
    parts = [_uvarints[len(payloads)]]
    for tag, payload in payloads:
        data = b"".join(payload)
        parts += (_uvarints[tag], _uvarints[len(data)], data)
    return b"".join(parts)


def no_such_field(name: str, version: int) -> NoReturn:
    """Raise EncodeError for a value that the version cannot carry and that must not be dropped silently."""
    raise EncodeError(f"version {version} has no field {name}, and its value is not the default")


class _Source:
    """The source text of one encoder while it is generated."""

    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.lines: list[str] = []
        self.indent = 1
        self.names: dict[str, Any] = {
            "uvarints": _uvarints,
            "string_sizes": _string_sizes,
            "compact_string": compact_string,
            "tagged_section": tagged_section,
            "no_such_field": no_such_field,
            "pack": struct.pack,
        }
        # The list for the parts. Tagged fields are first written to a separate list.
        self.parts = "parts"
        # Fixed-size values for the next struct call: (struct code, expression).
        self.run: list[tuple[str, str]] = []
        # Parts that are added to the list together.
        self.pieces: list[str] = []
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

    def write(self, expression: str) -> None:
        """Add a part, after the values before it."""
        self.pack()
        self.pieces.append(expression)

    def pack(self) -> None:
        """Make a part of the fixed-size values."""
        if not self.run:
            return
        layout = struct.Struct(">" + "".join(code for code, _ in self.run))
        values = [expression for _, expression in self.run]
        self.run.clear()
        if all(value.isdigit() for value in values):
            self.pieces.append(repr(layout.pack(*map(int, values))))
        else:
            self.pieces.append(f"{self.bind('pack', layout.pack)}({', '.join(values)})")

    def flush(self) -> None:
        """Emit the code for everything so far: what follows may run several times, or not at all."""
        self.pack()
        if len(self.pieces) == 1:
            self.emit(f"{self.parts}.append({self.pieces[0]})")
        elif self.pieces:
            self.emit(f"{self.parts} += {', '.join(self.pieces)}")
        self.pieces.clear()

    def message(self, cls: type[Message], owner: str) -> None:
        """Emit code that writes the struct named by the expression `owner`."""
        tagged: list[WireField] = []
        for field in cls.wire_fields:
            if self.version not in field.versions:
                if not field.ignorable:
                    differs = self.differs(field, f"{owner}.{field.name}")
                    self.emit(f"if {differs}: no_such_field({field.name!r}, {self.version})")
            elif field.tag is not None:
                tagged.append(field)
            else:
                nullable = self.version in field.nullable
                self.value(field.name, f"{owner}.{field.name}", field.type, nullable, classic=field.classic)
        if self.flexible and not tagged:
            self.run.append(("B", "0"))
        elif self.flexible:
            self.tags(tagged, owner)

    def differs(self, field: WireField, expression: str) -> str:
        """Return an expression that tests whether a field's value differs from its default."""
        absent = field.absent
        if absent is None or isinstance(absent, bool):
            return f"{expression} is not {absent}"
        if isinstance(absent, list):
            return f"{expression}"
        if isinstance(absent, Message):
            default = self.bind("default", absent)
            return f"{expression} is not {default} and {expression} != {default}"
        return f"{expression} != {absent!r}"

    def tags(self, tagged: list[WireField], owner: str) -> None:
        payloads = self.variable("payloads")
        self.pack()
        self.emit(f"{payloads} = []")
        for field in sorted(tagged, key=lambda field: field.tag or 0):
            value, outer, pieces = self.variable(field.name), self.parts, self.pieces
            self.emit(f"{value} = {owner}.{field.name}")
            self.emit(f"if {self.differs(field, value)}:")
            self.indent += 1
            self.parts, self.pieces = self.variable("payload"), []
            self.emit(f"{self.parts} = []")
            self.value(field.name, value, field.type, self.version in field.nullable, tagged=True)
            self.flush()
            self.emit(f"{payloads}.append(({field.tag}, {self.parts}))")
            self.parts, self.pieces = outer, pieces
            self.indent -= 1
        self.write(f"tagged_section({payloads}) if {payloads} else b'\\0'")

    def value(
        self, name: str, expression: str, wire_type: Any, nullable: bool, *, classic: bool = False, tagged: bool = False
    ) -> None:
        """Emit code that writes one value."""
        if isinstance(wire_type, WireType) and wire_type.code:
            self.run.append((wire_type.code, expression))
            return
        variable = self.variable(name)
        self.emit(f"{variable} = {expression}")
        if isinstance(wire_type, type):
            self.struct(variable, wire_type, nullable, tagged)
        elif isinstance(wire_type, Array):
            self.array(name, variable, wire_type, nullable)
        else:
            self.blob(variable, wire_type, nullable, self.flexible and not classic)

    def struct(self, variable: str, cls: type[Message], nullable: bool, tagged: bool) -> None:
        if not nullable:
            self.message(cls, variable)
            return
        self.flush()
        self.emit(f"if {variable} is None: {self.parts}.append({bytes(1) if tagged else bytes((0xFF,))!r})")
        self.emit("else:")
        self.indent += 1
        self.run.append(("B", "1"))
        self.message(cls, variable)
        self.flush()
        self.indent -= 1

    def blob(self, variable: str, wire_type: WireType, nullable: bool, compact: bool) -> None:
        content = variable
        if wire_type is String and nullable and compact:
            self.write(f"{bytes(1)!r} if {variable} is None else compact_string({variable})")
            return
        if wire_type is String:
            content = f"{variable}_bytes"
            encoded = f"{variable}.encode()"
            self.emit(f"{content} = b'' if {variable} is None else {encoded}" if nullable else f"{content} = {encoded}")
        self.size(f"len({content})", variable, nullable, compact, "h" if wire_type is String else "i")
        if nullable and wire_type is not String:
            self.flush()
            self.emit(f"if {variable} is not None: {self.parts}.append({content})")
        else:
            self.write(content)

    def size(self, length: str, variable: str, nullable: bool, compact: bool, code: str) -> None:
        if compact:
            prefix = f"{'string_sizes' if code == 'h' else 'uvarints'}[{length} + 1]"
            self.write(f"b'\\0' if {variable} is None else {prefix}" if nullable else prefix)
        else:
            self.run.append((code, f"-1 if {variable} is None else {length}" if nullable else length))

    def array(self, name: str, variable: str, wire_type: Array, nullable: bool) -> None:
        self.size(f"len({variable})", variable, nullable, self.flexible, "i")
        self.flush()
        item = wire_type.item
        if nullable:
            self.emit(f"if {variable} is not None:")
            self.indent += 1
        if isinstance(item, WireType) and item.code and item is not Uuid:
            self.emit(f"{self.parts}.append(pack(f'>{{len({variable})}}{item.code}', *{variable}))")
        else:
            element = self.variable(name)
            self.emit(f"for {element} in {variable}:")
            self.indent += 1
            if isinstance(item, type):
                self.message(item, element)
            else:
                self.value(name, element, item, False)
            self.flush()
            self.indent -= 1
        if nullable:
            self.indent -= 1


def compile_encoder(cls: type[Message], version: int) -> Encoder:
    """Return `encode(message, parts)`, which appends the message's bytes in one version to `parts`."""
    source = _Source(version, version in cls.flexible)
    source.message(cls, "message")
    source.flush()
    text = "def encode(message, parts):\n    pass\n" + "\n".join(source.lines)
    exec(compile(text, f"<encoder of {cls.__name__} version {version}>", "exec"), source.names)  # noqa: S102 - our text
    encode: Encoder = source.names["encode"]
    return encode
