"""Bytes of records for people: JSON, text, MessagePack, Avro, Protobuf, or hexadecimal.

JSON is never parsed and written again, because that would round its numbers: its text is shown as it is.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from ottla.client.errors import SerializationError
from ottla.client.schema.framing import FRAME, is_framed, schema_id_of

if TYPE_CHECKING:
    from ottla.client.schema.registry import SchemaRegistry

DecodeAs = Literal["auto", "json", "text", "msgpack", "avro", "protobuf", "hex"]
Format = Literal["null", "empty", "json", "text", "msgpack", "avro", "protobuf", "internal", "hex"]

_JSON_STARTS: Final = b'{["-0123456789tfn'
# Maps and arrays of MessagePack. A single number or text would match almost any byte.
_MSGPACK_STARTS: Final = frozenset([*range(0x80, 0xA0), 0xDC, 0xDD, 0xDE, 0xDF])
_HEX_BYTES_MAX: Final = 4096
_CONTROL_SHARE_MAX: Final = 0.05


class Payload(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A key, a value or a header, decoded as well as possible."""

    size: int
    """In bytes."""
    format: Format
    text: str | None = None
    """JSON for the formats that have fields, otherwise the text itself; never parse it with JSON.parse for display."""
    is_truncated: bool = False
    note: str | None = None
    """Why it is shown like this, or why it could not be decoded as asked."""
    schema_id: int | None = None


class Decoded(msgspec.Struct):
    """A payload as an object, for filters, and how to show it."""

    payload: Payload
    value: Any


class PayloadError(Exception):
    """Bytes are not in a format; the text says why."""


class Decoder:
    """Decodes payloads; text beyond `shown_max` is left out, if it is not None."""

    def __init__(self, registry: SchemaRegistry | None = None, shown_max: int | None = 64 * 1024) -> None:
        self._registry = registry
        self._shown_max = shown_max

    async def decode(self, data: bytes | None, how: DecodeAs = "auto", *, needs_value: bool = False) -> Decoded:
        """Decode bytes; never raises. With `needs_value`, also returns an object for filters."""
        if data is None:
            return Decoded(Payload(size=-1, format="null"), None)
        if not data:
            return Decoded(Payload(size=0, format="empty", text=""), "")
        if how == "auto":
            return await self._guessed(data, needs_value=needs_value)
        try:
            return await self._as(data, how, needs_value=needs_value)
        except PayloadError as failure:
            shown = self._hex(data)
            shown.payload.note = str(failure)
            return shown

    def internal(self, data: bytes | None, text: str | None) -> Decoded:
        """Show a part of a record of one of Kafka's internal topics, which was decoded before."""
        if data is None or text is None:
            return Decoded(Payload(size=-1, format="null"), None)
        return self._shown("internal", data, text, msgspec.json.decode(text))

    async def _guessed(self, data: bytes, *, needs_value: bool) -> Decoded:
        note = None
        if is_framed(data):
            if self._registry is None:
                note = f"it may have schema {schema_id_of(data)} of a registry: name it with --schema-registry"
            else:
                try:
                    return await self._framed(data, None, needs_value=needs_value)
                except PayloadError as failure:
                    note = str(failure)
        for how in _guesses(data):
            try:
                found = await self._as(data, how, needs_value=needs_value)
            except PayloadError:
                continue
            found.payload.note = found.payload.note or note
            return found
        shown = self._hex(data)
        shown.payload.note = note
        return shown

    async def _as(self, data: bytes, how: DecodeAs, *, needs_value: bool) -> Decoded:
        match how:
            case "json":
                if self._registry is not None and is_framed(data):
                    return await self._framed(data, how, needs_value=needs_value)
                return self._json(data, needs_value=needs_value)
            case "text":
                return self._text(data)
            case "msgpack":
                return self._msgpack(data)
            case "avro" | "protobuf":
                return await self._framed(data, how, needs_value=needs_value)
            case _:
                return self._hex(data)

    def _json(self, data: bytes, *, needs_value: bool) -> Decoded:
        try:
            value = msgspec.json.decode(data) if needs_value else msgspec.json.decode(data, type=msgspec.Raw)
            text = data.decode()
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise PayloadError(f"not JSON: {error}") from None
        return self._shown("json", data, text, value)

    def _text(self, data: bytes) -> Decoded:
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise PayloadError(f"not UTF-8: byte {error.start} is {data[error.start]:#04x}") from None
        return self._shown("text", data, text, text)

    def _msgpack(self, data: bytes) -> Decoded:
        try:
            value = msgspec.msgpack.decode(data)
            text = msgspec.json.encode(value, enc_hook=_plain).decode()
        except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
            raise PayloadError(f"not MessagePack: {error}") from None
        return self._shown("msgpack", data, text, value)

    async def _framed(self, data: bytes, how: DecodeAs | None, *, needs_value: bool) -> Decoded:
        if self._registry is None:
            raise PayloadError("there is no schema registry: name one with --schema-registry")
        try:
            schema_id = schema_id_of(data)
            kind, text = await self._registry.to_json(schema_id, data[FRAME.size :])
            value = msgspec.json.decode(text) if needs_value else None
        except SerializationError as error:
            raise PayloadError(error.detail) from error
        except (msgspec.MsgspecError, RecursionError) as error:
            raise PayloadError(f"it cannot be filtered: {error}") from error
        if how is not None and kind != how:
            raise PayloadError(f"schema {schema_id} is for {kind}")
        shown = self._shown(kind, data, text, value)
        shown.payload.schema_id = schema_id
        shown.payload.note = f"decoded as {kind} because it has schema {schema_id}"
        return shown

    def _hex(self, data: bytes) -> Decoded:
        limit = len(data) if self._shown_max is None else min(_HEX_BYTES_MAX, self._shown_max)
        text = data[:limit].hex()
        payload = Payload(size=len(data), format="hex", text=text, is_truncated=len(data) > limit)
        return Decoded(payload, text)

    def _shown(self, kind: Format, data: bytes, text: str, value: Any) -> Decoded:
        is_truncated = self._shown_max is not None and len(text) > self._shown_max
        shown = text[: self._shown_max] if is_truncated else text
        return Decoded(Payload(size=len(data), format=kind, text=shown, is_truncated=is_truncated), value)


def _guesses(data: bytes) -> list[DecodeAs]:
    guesses: list[DecodeAs] = []
    if data.lstrip()[:1] in [bytes([each]) for each in _JSON_STARTS]:
        guesses.append("json")
    if data[0] in _MSGPACK_STARTS:
        guesses.append("msgpack")
    if _is_readable(data):
        guesses.append("text")
    return guesses


def _is_readable(data: bytes) -> bool:
    """Whether text has few control characters; a number in eight bytes is valid UTF-8 and no text."""
    sample = data[:4096]
    controls = sum(byte < 0x20 and byte not in b"\t\n\r" for byte in sample)
    return controls <= len(sample) * _CONTROL_SHARE_MAX


def _plain(value: Any) -> Any:
    """Return what JSON lacks as text: MessagePack has extensions, and keys of any type."""
    if isinstance(value, msgspec.msgpack.Ext):
        return {"type": value.code, "base64": base64.b64encode(bytes(value.data)).decode()}
    return str(value)
