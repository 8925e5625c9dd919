"""`topic consume --decode`: keys and values as people read them, by the same rules as in the console."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ottla.client.cli.records.reading import ReadRecord
from ottla.client.cli.records.record_format import as_json
from ottla.client.cli.records.schemas import in_one_line, registry_at
from ottla.client.cli.terminal.errors import CommandError
from ottla.client.cli.terminal.output import Format, say, written
from ottla.client.errors import SerializationError
from ottla.client.schema.avro import AvroCodec
from ottla.client.schema.decoding import DecodeAs, Decoder, Payload
from ottla.client.schema.protobuf import ProtobufCodec
from ottla.client.schema.registry import SchemaRegistry

_WITH_FIELDS: Final = ("json", "msgpack", "avro", "protobuf")


class RecordDecoder:
    """Decodes keys and values. Those that cannot be decoded stay as they are, and standard error says why."""

    def __init__(self, how: DecodeAs, registry_url: str | None) -> None:
        """CommandError if the registry or a library for its schemas is missing."""
        if registry_url is None and how in ("avro", "protobuf"):
            raise CommandError(
                f"--decode {how} needs schemas: say where they are with --schema-registry URL or "
                "OTTLA_SCHEMA_REGISTRY.",
                2,
            )
        self._how = how
        self._has_registry = registry_url is not None
        self._has_hinted = False
        self._decoder = Decoder(None if registry_url is None else _registry(registry_url, how), shown_max=None)

    async def with_texts(self, read: ReadRecord) -> ReadRecord:
        """Return a record whose key and value are their texts."""
        record = read.record
        key = await self._text(read, "key", record.key)
        value = await self._text(read, "value", record.value)
        return read._replace(record=record._replace(key=key, value=value))

    async def as_data(self, read: ReadRecord, output_format: Format) -> str:
        """Return a record as JSON or YAML. Binary data are {"base64": ...}, unless hexadecimal was asked for."""
        item = as_json(read)
        decoded = dict(item)
        for part, data in (("key", read.record.key), ("value", read.record.value)):
            payload = await self._payload(read, part, data)
            if payload is not None and (payload.format != "hex" or self._how == "hex"):
                decoded[part] = _plain(payload)
        try:
            return written(decoded, output_format)
        except RecursionError:
            self._tell(read, "record", f"it is nested too deep for {output_format}")
            return written(item, output_format)

    async def _text(self, read: ReadRecord, part: str, data: bytes | None) -> bytes | None:
        payload = await self._payload(read, part, data)
        return data if payload is None or payload.text is None else payload.text.encode()

    async def _payload(self, read: ReadRecord, part: str, data: bytes | None) -> Payload | None:
        """Decode a part of a record; None if it stays as it is."""
        if not data:
            return None
        payload = (await self._decoder.decode(data, self._how)).payload
        # Without a schema, a note is a reason why the bytes could not be decoded better.
        if payload.note is not None and payload.schema_id is None:
            self._tell(read, part, payload.note)
            if self._how != "auto":
                return None
        return payload

    def _tell(self, read: ReadRecord, part: str, reason: str) -> None:
        # A number in eight bytes looks as if it named a schema, so this is a guess, and said only once.
        if self._how == "auto" and not self._has_registry:
            if self._has_hinted:
                return
            self._has_hinted = True
        say(f"{read.partition} at offset {read.record.offset}: the {part} is not decoded: {in_one_line(reason)}")


def _registry(url: str, how: DecodeAs) -> SchemaRegistry:
    """CommandError if it cannot be used for this format."""
    try:
        if how in ("auto", "avro"):
            AvroCodec('"null"')
        if how in ("auto", "protobuf"):
            ProtobufCodec("", {})
    except SerializationError as error:
        raise CommandError(error.detail) from error
    return registry_at(url)


def _plain(payload: Payload) -> Any:
    if payload.format not in _WITH_FIELDS:
        return payload.text
    try:
        return msgspec.json.decode(payload.text or "")
    except (msgspec.MsgspecError, RecursionError):
        # It is JSON with a number out of range, or nested too deep.
        return payload.text
