"""Encoding and decoding messages: the only way between bytes and message objects.

Codecs are compiled from the declarations on first use, and kept. If one of them refuses some bytes, the same
declaration as a construct (`schema.py`) explains the error and names the field.
"""

from __future__ import annotations

import struct
from typing import Any, TypeVar

from ottla.protocol.decoder import ENTRIES_UNLIMITED, Decoder, compile_decoder
from ottla.protocol.encoder import Encoder, compile_encoder
from ottla.protocol.errors import DecodeError, EncodeError
from ottla.protocol.message import Message

T = TypeVar("T", bound=Message)
Buffer = bytes | bytearray | memoryview

# An explanation costs many times as much as decoding, and hostile peers choose when it happens.
EXPLAINED_BYTES_MAX = 4096


_decoders: dict[tuple[type[Message], int], Decoder] = {}
_encoders: dict[tuple[type[Message], int], Encoder] = {}


def decoder(cls: type[Message], version: int) -> Decoder:
    """Return the compiled decoder of a message in one version."""
    known = _decoders.get((cls, version))
    if known is None:
        _check_version(cls, version, DecodeError)
        known = _decoders[cls, version] = compile_decoder(cls, version)
    return known


def encoder(cls: type[Message], version: int) -> Encoder:
    """Return the compiled encoder of a message in one version."""
    known = _encoders.get((cls, version))
    if known is None:
        _check_version(cls, version, EncodeError)
        known = _encoders[cls, version] = compile_encoder(cls, version)
    return known


def decode_from(
    cls: type[T], version: int, data: Buffer, position: int = 0, entries_max: int = ENTRIES_UNLIMITED
) -> tuple[T, int]:
    """Decode the message at `position`; return it and the position after it.

    Records in it are views of `data`; everything else is copied. A message with more than `entries_max` entries in its
    arrays is refused before they are created.
    """
    view = data if type(data) is memoryview else memoryview(data)
    try:
        return (_decoders.get((cls, version)) or decoder(cls, version))(view, position, entries_max)
    except (struct.error, IndexError, UnicodeDecodeError, DecodeError) as error:
        raise _explained(cls, version, view[position:], error) from error


def decode(cls: type[T], version: int, data: Buffer) -> T:
    """Decode a message that fills `data`; bytes left over are an error."""
    message, position = decode_from(cls, version, data)
    if position != len(data):
        raise DecodeError(f"{cls.__name__} version {version}: {len(data) - position} bytes left over")
    return message


def encode_parts(message: Message, version: int, before: list[Any] | None = None) -> list[Any]:
    """Encode to a list of parts: bytes, and the records as given, which are neither copied nor read.

    They are added to the list of parts that come before the message, if there is one.
    """
    cls = type(message)
    parts: list[Any] = [] if before is None else before
    try:
        (_encoders.get((cls, version)) or encoder(cls, version))(message, parts)
    except (struct.error, AttributeError, TypeError, UnicodeEncodeError, ValueError, EncodeError) as error:
        raise EncodeError(f"{cls.__name__} version {version}: {error}") from error
    return parts


def encode(message: Message, version: int) -> bytes:
    """Encode to bytes."""
    return b"".join(encode_parts(message, version))


def _check_version(cls: type[Message], version: int, error: type[DecodeError] | type[EncodeError]) -> None:
    if version not in cls.versions:
        raise error(f"{cls.__name__} has versions {cls.versions}, not {version}")


def _explained(cls: type[Message], version: int, data: memoryview, error: Exception) -> DecodeError:
    if version in cls.versions and len(data) <= EXPLAINED_BYTES_MAX:
        from ottla.protocol import schema

        try:
            schema.parse(cls, version, data)
        except DecodeError as explained:
            return explained
    return DecodeError(f"{cls.__name__} version {version}: {error}")
