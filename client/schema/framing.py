"""How a payload names its schema, as Confluent's serializers do.

    byte 0, int32 schema id, payload
    byte 0, int32 schema id, message index, payload      for Protobuf

A message index says which message of the file it is: a count and that many indexes, each a zigzag varint. A single 0
means the first message.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from ottla.client.errors import SerializationError

FRAME: Final = Struct(">bI")
_MAGIC: Final = 0
_INDEXES_MAX: Final = 64


def framed(schema_id: int, payload: bytes) -> bytes:
    """Put the id of its schema before a payload."""
    return FRAME.pack(_MAGIC, schema_id) + payload


def is_framed(data: bytes) -> bool:
    """Whether bytes may have the id of a schema."""
    return len(data) > FRAME.size and data[0] == _MAGIC


def schema_id_of(data: bytes) -> int:
    """Return the id of the schema; SerializationError if there is none."""
    if not is_framed(data):
        raise SerializationError("no schema id: it does not begin with 0 and four bytes")
    schema_id: int = FRAME.unpack_from(data)[1]
    return schema_id


def message_index(path: Sequence[int]) -> bytes:
    """Encode which message of its file a Protobuf message is."""
    if list(path) == [0]:
        return b"\0"
    return b"".join(_encoded(number) for number in (len(path), *path))


def read_message_index(data: bytes) -> tuple[list[int], int]:
    """Read which message it is; return that with the position behind it."""
    count, position = _zigzag(data, 0)
    if count == 0:
        return [0], position
    if not 0 < count <= _INDEXES_MAX:
        raise SerializationError("the index of its message is not valid")
    path = []
    for _ in range(count):
        index, position = _zigzag(data, position)
        path.append(index)
    return path, position


def _encoded(number: int) -> bytes:
    number <<= 1
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _zigzag(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(data) or shift > 28:
            raise SerializationError("it ends inside the index of its message")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value >> 1 ^ -(value & 1), position
