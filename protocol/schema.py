"""The declarations as constructs: the reference to which tests compare the compiled codecs.

`schema(cls, version)` is a plain construct that parses to and builds from the message class. It is slow but exact, and
its errors contain the path of the wrong field, so it also explains what the compiled decoder refused. It is imported on
first use, because importing construct takes some 50 ms.
"""

from __future__ import annotations

import io
from typing import Any

import construct as c

from ottla.protocol.errors import DecodeError, EncodeError
from ottla.protocol.message import Message, WireField
from ottla.protocol.primitives import (
    STRING_BYTES_MAX,
    UVARINT_BYTES_MAX,
    VARLONG_BYTES_MAX,
    Array,
    String,
    WireType,
)


class _UnsignedVarint(c.Construct):
    """A varint of at most `bytes_max` bytes and `bits` bits. construct's own VarInt takes any number of bytes."""

    def __init__(self, bytes_max: int, bits: int) -> None:
        super().__init__()
        self.bytes_max = bytes_max
        self.limit = 1 << bits

    def _parse(self, stream: Any, context: Any, path: str) -> int:
        value = 0
        for index in range(self.bytes_max):
            byte: int = c.stream_read(stream, 1, path)[0]
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                if value >= self.limit:
                    raise c.IntegerError(f"varint {value} is out of range", path=path)
                return value
        raise c.IntegerError(f"varint is longer than {self.bytes_max} bytes", path=path)

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        if not isinstance(obj, int) or not 0 <= obj < self.limit:
            raise c.IntegerError(f"{obj!r} does not fit the varint", path=path)
        rest = obj
        while rest > 0x7F:
            c.stream_write(stream, bytes((rest & 0x7F | 0x80,)), 1, path)
            rest >>= 7
        c.stream_write(stream, bytes((rest,)), 1, path)
        return obj


class _ZigZag(c.Adapter):
    def _decode(self, obj: int, context: Any, path: str) -> int:
        return (obj >> 1) ^ -(obj & 1)

    def _encode(self, obj: int, context: Any, path: str) -> int:
        return obj << 1 if obj >= 0 else (-obj << 1) - 1


UVARINT = _UnsignedVarint(UVARINT_BYTES_MAX, 32)
VARINT = _ZigZag(UVARINT)
VARLONG = _ZigZag(_UnsignedVarint(VARLONG_BYTES_MAX, 64))


class _Length(c.Adapter):
    """A length whose wire value 0 means null. The decoded value of null is -1 in both encodings."""

    def _decode(self, obj: int, context: Any, path: str) -> int:
        return obj - 1

    def _encode(self, obj: int, context: Any, path: str) -> int:
        return obj + 1


LENGTH_INT16 = c.Int16sb
LENGTH_INT32 = c.Int32sb
LENGTH_COMPACT = _Length(UVARINT)


class _Prefixed(c.Construct):
    """A length or count, then the content. -1 is null, and only allowed if `nullable`."""

    def __init__(self, length: c.Construct, nullable: bool) -> None:
        super().__init__()
        self.length = length
        self.nullable = nullable

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        size = self.length._parsereport(stream, context, path)
        if size >= 0:
            return self._parse_content(size, stream, context, path)
        if self.nullable:
            return None
        raise c.StreamError(f"length {size}, but null is not allowed", path=path)

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        if obj is None:
            if not self.nullable:
                raise c.StreamError("null is not allowed here", path=path)
            self.length._build(-1, stream, context, path)
        else:
            self._build_content(obj, stream, context, path)
        return obj

    def _parse_content(self, size: int, stream: Any, context: Any, path: str) -> Any:
        return c.stream_read(stream, size, path)

    def _build_content(self, obj: Any, stream: Any, context: Any, path: str) -> None:
        data = bytes(obj)
        self.length._build(len(data), stream, context, path)
        c.stream_write(stream, data, len(data), path)


class _PrefixedString(_Prefixed):
    def _parse_content(self, size: int, stream: Any, context: Any, path: str) -> Any:
        _check_string_size(size, path)
        try:
            return c.stream_read(stream, size, path).decode()
        except UnicodeDecodeError as error:
            raise c.StringError(f"not UTF-8: {error}", path=path) from error

    def _build_content(self, obj: Any, stream: Any, context: Any, path: str) -> None:
        encoded = obj.encode()
        _check_string_size(len(encoded), path)
        super()._build_content(encoded, stream, context, path)


def _check_string_size(size: int, path: str) -> None:
    if size > STRING_BYTES_MAX:
        raise c.StringError(f"a string of {size} bytes is longer than {STRING_BYTES_MAX}", path=path)


class _PrefixedArray(_Prefixed):
    def __init__(self, length: c.Construct, nullable: bool, item: c.Construct) -> None:
        super().__init__(length, nullable)
        self.item = item

    def _parse_content(self, size: int, stream: Any, context: Any, path: str) -> Any:
        return [self.item._parsereport(stream, context, f"{path}[{index}]") for index in range(size)]

    def _build_content(self, obj: Any, stream: Any, context: Any, path: str) -> None:
        self.length._build(len(obj), stream, context, path)
        for index, item in enumerate(obj):
            self.item._build(item, stream, context, f"{path}[{index}]")


_FIXED: dict[str, c.Construct] = {
    "boolean": c.Flag,
    "int8": c.Int8sb,
    "int16": c.Int16sb,
    "uint16": c.Int16ub,
    "int32": c.Int32sb,
    "uint32": c.Int32ub,
    "int64": c.Int64sb,
    "float64": c.Float64b,
    "uuid": c.Bytes(16),
}


class _NullableStruct(c.Construct):
    """A marker for null or present, then the struct. The marker is int8 -1 or 1, or uvarint 0 or 1 inside a tag."""

    def __init__(self, item: c.Construct, tagged: bool) -> None:
        super().__init__()
        self.item = item
        self.marker: c.Construct = LENGTH_COMPACT if tagged else c.Int8sb
        self.present = 0 if tagged else 1

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        if self.marker._parsereport(stream, context, path) < 0:
            return None
        return self.item._parsereport(stream, context, path)

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        self.marker._build(-1 if obj is None else self.present, stream, context, path)
        if obj is not None:
            self.item._build(obj, stream, context, path)
        return obj


class _TaggedFields(c.Construct):
    """uvarint count, then for each tag in ascending order: uvarint tag, uvarint size, payload. Skips unknown tags."""

    def __init__(self, fields: dict[int, tuple[WireField, c.Construct]]) -> None:
        super().__init__()
        self.fields = fields
        self.flagbuildnone = True

    def _parse(self, stream: Any, context: Any, path: str) -> dict[str, Any]:
        values: dict[str, Any] = {}
        last = -1
        for _ in range(UVARINT._parsereport(stream, context, path)):
            tag = UVARINT._parsereport(stream, context, path)
            if tag <= last:
                raise c.CheckError(f"tag {tag} after tag {last}", path=path)
            last = tag
            payload = c.stream_read(stream, UVARINT._parsereport(stream, context, path), path)
            if tag in self.fields:
                field, item = self.fields[tag]
                inner = io.BytesIO(payload)
                values[field.name] = item._parsereport(inner, context, f"{path} -> {field.name}")
                if inner.tell() != len(payload):
                    raise c.CheckError(f"tag {tag} has bytes left over", path=path)
        return values

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        payloads = []
        for tag, (field, item) in sorted(self.fields.items()):
            value = obj[field.name]
            if value != field.absent:
                inner = io.BytesIO()
                item._build(value, inner, context, f"{path} -> {field.name}")
                payloads.append((tag, inner.getvalue()))
        UVARINT._build(len(payloads), stream, context, path)
        for tag, payload in payloads:
            UVARINT._build(tag, stream, context, path)
            UVARINT._build(len(payload), stream, context, path)
            c.stream_write(stream, payload, len(payload), path)
        return obj


class _MessageAdapter(c.Adapter):
    """Converts between construct's container of one version and the object that serves all versions."""

    def __init__(self, cls: type[Message], version: int, subcon: c.Construct) -> None:
        super().__init__(subcon)
        self.cls = cls
        self.version = version

    def _decode(self, obj: Any, context: Any, path: str) -> Message:
        present = {name: value for name, value in obj.items() if name != "_io"}
        present |= present.pop("_tags", {})
        for field in self.cls.wire_fields:
            if field.name not in present:
                present[field.name] = field.absent
        return self.cls(**present)

    def _encode(self, obj: Message, context: Any, path: str) -> dict[str, Any]:
        if type(obj) is not self.cls:
            raise c.FormatFieldError(f"{type(obj).__name__} in place of {self.cls.__name__}", path=path)
        values = {field.name: getattr(obj, field.name) for field in self.cls.wire_fields}
        for field in self.cls.wire_fields:
            if self.version not in field.versions and not field.ignorable and values[field.name] != field.absent:
                raise c.CheckError(f"version {self.version} has no field {field.name}", path=path)
        return values | {"_tags": values}


def _field_construct(wire_type: Any, version: int, flexible: bool, nullable: bool, tagged: bool) -> Any:
    if isinstance(wire_type, Array):
        item = _field_construct(wire_type.item, version, flexible, False, False)
        return _PrefixedArray(LENGTH_COMPACT if flexible else LENGTH_INT32, nullable, item)
    if isinstance(wire_type, WireType):
        if wire_type.code:
            return _FIXED[wire_type.name]
        if wire_type is String:
            return _PrefixedString(LENGTH_COMPACT if flexible else LENGTH_INT16, nullable)
        return _Prefixed(LENGTH_COMPACT if flexible else LENGTH_INT32, nullable)
    item = _struct(wire_type, version, flexible)
    return _NullableStruct(item, tagged) if nullable else item


def _struct(cls: type[Message], version: int, flexible: bool) -> c.Construct:
    positional: list[Any] = []
    tagged: dict[int, tuple[WireField, Any]] = {}
    for field in cls.wire_fields:
        if version not in field.versions:
            continue
        compact = flexible and not field.classic
        item = _field_construct(field.type, version, compact, version in field.nullable, field.tag is not None)
        if field.tag is None:
            positional.append(field.name / item)
        else:
            tagged[field.tag] = (field, item)
    if flexible:
        positional.append("_tags" / _TaggedFields(tagged))
    return _MessageAdapter(cls, version, c.Struct(*positional))


_schemas: dict[tuple[type[Message], int], c.Construct] = {}


def schema(cls: type[Message], version: int) -> c.Construct:
    """Return the construct of a message in one version."""
    known = _schemas.get((cls, version))
    if known is None:
        known = _schemas[cls, version] = _struct(cls, version, version in cls.flexible)
    return known


def parse(cls: type[Message], version: int, data: bytes | bytearray | memoryview) -> Any:
    """Decode through construct; a DecodeError names the field."""
    stream = io.BytesIO(data)
    try:
        message = schema(cls, version).parse_stream(stream)
    except c.ConstructError as error:
        raise DecodeError(f"{cls.__name__} version {version}: {_plain(error)}") from error
    if stream.tell() != len(data):
        raise DecodeError(f"{cls.__name__} version {version}: {len(data) - stream.tell()} bytes left over")
    return message


def build(message: Message, version: int) -> bytes:
    """Encode through construct; an EncodeError names the field."""
    try:
        data: bytes = schema(type(message), version).build(message)
    except (c.ConstructError, AttributeError, TypeError, KeyError) as error:
        raise EncodeError(f"{type(message).__name__} version {version}: {_plain(error)}") from error
    return data


def _plain(error: Exception) -> str:
    """Return construct's message on one line: `topics[0] -> name: stream read less than ...`."""
    text = str(error)
    path = getattr(error, "path", None) or ""
    detail = text.split("\n", 1)[-1] if path else text
    steps = [step for step in path.split(" -> ") if step not in ("", "(parsing)", "(building)", "_tags")]
    return f"{'.'.join(steps)}: {detail}" if steps else detail
