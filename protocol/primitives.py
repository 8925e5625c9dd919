"""The primitive types of the wire.

A `WireType` is written on a field's line in a message declaration. `schema.py` has its construct for both encodings
(classic and flexible, nullable or not). This file has what the compilers need: the `struct` code of fixed-size types,
the value of a field in a version that lacks it, and the minimum size of a value.

Byte layouts (all fixed-size numbers are big-endian):

    uvarint          7 bits per byte, low group first, high bit = more; at most 5 bytes
    varint, varlong  zigzag, then as uvarint; at most 5 and 10 bytes
    classic string   int16 length, -1 = null        flexible: uvarint(length + 1), 0 = null; at most 32,767 bytes
    classic bytes    int32 length, -1 = null        flexible: uvarint(length + 1), 0 = null
    classic array    int32 count,  -1 = null        flexible: uvarint(count + 1),  0 = null
    uuid             16 bytes; as text 22 characters of unpadded URL-safe base64
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Any

# The value of a `records` field: a memoryview after decoding; for encoding, any bytes or the broker's file slice.
RecordData = Any

UUID_ZERO = bytes(16)
UVARINT_BYTES_MAX = 5
VARLONG_BYTES_MAX = 10
# The most bytes that a string may have, in both encodings: the classic one has no room for more, and Kafka refuses more
# in the flexible one, too.
STRING_BYTES_MAX = 2**15 - 1
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


def encode_uvarint(value: int) -> bytes:
    """Return `value` as an unsigned varint of at most 5 bytes."""
    if not 0 <= value <= 0xFFFFFFFF:
        raise ValueError(f"{value} does not fit an unsigned varint of 32 bits")
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def uuid_to_text(value: bytes) -> str:
    """Return Kafka's text form of a uuid."""
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def uuid_from_text(text: str) -> bytes:
    """Return the 16 bytes of a uuid in Kafka's text form."""
    try:
        value = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{text!r} is not a uuid: {error}") from error
    if len(value) != len(UUID_ZERO) or uuid_to_text(value) != text:
        raise ValueError(f"{text!r} is not a uuid of 22 base64 characters")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class WireType:
    """A type as written on a field's line. `code` is the struct code of a fixed-size type, otherwise empty."""

    name: str
    zero: Any = None
    code: str = ""
    bytes_min: int


@dataclass(frozen=True, slots=True)
class Array:
    """An array of a primitive or of a struct class."""

    item: Any


Boolean = WireType(name="boolean", zero=False, code="?", bytes_min=1)
Int8 = WireType(name="int8", zero=0, code="b", bytes_min=1)
Int16 = WireType(name="int16", zero=0, code="h", bytes_min=2)
UInt16 = WireType(name="uint16", zero=0, code="H", bytes_min=2)
Int32 = WireType(name="int32", zero=0, code="i", bytes_min=4)
UInt32 = WireType(name="uint32", zero=0, code="I", bytes_min=4)
Int64 = WireType(name="int64", zero=0, code="q", bytes_min=8)
Float64 = WireType(name="float64", zero=0.0, code="d", bytes_min=8)
Uuid = WireType(name="uuid", zero=UUID_ZERO, code="16s", bytes_min=16)
String = WireType(name="string", zero="", bytes_min=1)
Bytes = WireType(name="bytes", zero=b"", bytes_min=1)
Records = WireType(name="records", zero=None, bytes_min=1)
