"""Schemas from a registry, and payloads decoded with them. Avro and Protobuf need libraries that are optional."""

from __future__ import annotations

import asyncio
import base64
import time
from collections import OrderedDict
from collections.abc import Callable
from io import BytesIO
from typing import Any, Final, Literal

import aiohttp
import msgspec

from ottla.console.records.decoding import PayloadError

Kind = Literal["avro", "protobuf", "json"]
_DecodePayload = Callable[[bytes], str]

_TIMEOUT_S: Final = 3.0
_SCHEMA_BYTES_MAX: Final = 1024 * 1024
_KEPT_MAX: Final = 256
# A schema that could not be read is not asked for again before this.
_FAILURE_S: Final = 30.0
_REFERENCES_MAX: Final = 64
_WELL_KNOWN: Final = frozenset(
    f"google/protobuf/{name}.proto"
    for name in (
        "any",
        "api",
        "descriptor",
        "duration",
        "empty",
        "field_mask",
        "source_context",
        "struct",
        "timestamp",
        "type",
        "wrappers",
    )
)
_MISSING: Final = "is not installed: pip install 'ottla[schemas]'"


class _Reference(msgspec.Struct):
    name: str
    subject: str
    version: int


class _Schema(msgspec.Struct):
    schema: str
    schemaType: str = "AVRO"  # noqa: N815 - the registry's name
    references: list[_Reference] = []


class SchemaRegistry:
    """A schema registry; keeps the schemas that were used last."""

    def __init__(self, url: str, http: aiohttp.ClientSession, clock: Callable[[], float] = time.monotonic) -> None:
        self._url = url.rstrip("/")
        self._http = http
        self._clock = clock
        self._decoders: OrderedDict[int, tuple[Kind, _DecodePayload]] = OrderedDict()
        self._failures: OrderedDict[int, tuple[float, str]] = OrderedDict()
        self._reading = asyncio.Lock()

    async def decoded(self, schema_id: int, data: bytes) -> tuple[Kind, str]:
        """Return the kind of a schema, and a payload as JSON; PayloadError if that does not work."""
        kind, decode = await self._decoder(schema_id)
        try:
            return kind, decode(data)
        except PayloadError:
            raise
        except Exception as error:  # libraries raise anything for bytes that do not fit
            raise PayloadError(f"it does not fit schema {schema_id}: {error}") from error

    async def _decoder(self, schema_id: int) -> tuple[Kind, _DecodePayload]:
        if schema_id in self._decoders:
            self._decoders.move_to_end(schema_id)
            return self._decoders[schema_id]
        async with self._reading:
            if schema_id in self._decoders:
                return self._decoders[schema_id]
            failed_at, reason = self._failures.get(schema_id, (0.0, ""))
            if reason and self._clock() - failed_at < _FAILURE_S:
                raise PayloadError(reason)
            try:
                found = await self._read(schema_id)
            except PayloadError as failure:
                self._failures[schema_id] = (self._clock(), str(failure))
                while len(self._failures) > _KEPT_MAX:
                    self._failures.popitem(last=False)
                raise
            self._decoders[schema_id] = found
            while len(self._decoders) > _KEPT_MAX:
                self._decoders.popitem(last=False)
            return found

    async def _read(self, schema_id: int) -> tuple[Kind, _DecodePayload]:
        schema = await self._get(f"/schemas/ids/{schema_id}")
        try:
            match schema.schemaType:
                case "AVRO":
                    return "avro", _avro_decoder(schema.schema)
                case "JSON":
                    return "json", lambda data: data.decode()
                case "PROTOBUF":
                    return "protobuf", await self._protobuf(schema_id)
        except PayloadError:
            raise
        except Exception as error:  # a schema may be anything
            raise PayloadError(f"schema {schema_id} cannot be used: {error}") from error
        raise PayloadError(f"schema {schema_id} is for {schema.schemaType}, which is not known here")

    async def _get(self, path: str) -> _Schema:
        try:
            async with self._http.get(
                self._url + path, timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S), allow_redirects=False
            ) as answer:
                body = await answer.content.read(_SCHEMA_BYTES_MAX)
                if answer.status == 404:
                    raise PayloadError(f"the registry has no {path.removeprefix('/')}")
                if answer.status != 200:
                    raise PayloadError(f"the registry answered {answer.status}")
                return msgspec.json.decode(body, type=_Schema)
        except (aiohttp.ClientError, TimeoutError, msgspec.MsgspecError) as error:
            raise PayloadError(f"the registry cannot be read: {str(error) or type(error).__name__}") from error

    async def _protobuf(self, schema_id: int) -> _DecodePayload:
        """Read the schema and what it refers to as descriptors, which need no compiler."""
        try:
            from google.protobuf import descriptor_pb2, descriptor_pool
        except ImportError:
            raise PayloadError(f"protobuf {_MISSING}") from None
        pool = descriptor_pool.DescriptorPool()
        files: dict[str, Any] = {}

        async def add(path: str, name: str, depth: int) -> None:
            if len(files) > _REFERENCES_MAX or depth > _REFERENCES_MAX:
                raise PayloadError("the schema refers to too many others")
            schema = await self._get(f"{path}?format=serialized")
            for each in schema.references:
                if each.name not in files:
                    await add(f"/subjects/{each.subject}/versions/{each.version}", each.name, depth + 1)
            file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(schema.schema))
            file.name = name
            files[name] = file

        main = f"schema-{schema_id}.proto"
        await add(f"/schemas/ids/{schema_id}", main, 0)
        for file in files.values():
            for dependency in file.dependency:
                if dependency not in files:
                    _add_well_known(pool, dependency)
            pool.Add(file)
        return _protobuf_decoder(pool, files[main])


def _avro_decoder(schema: str) -> _DecodePayload:
    try:
        import fastavro
    except ImportError:
        raise PayloadError(f"fastavro {_MISSING}") from None
    parsed = fastavro.parse_schema(msgspec.json.decode(schema))

    def decode(data: bytes) -> str:
        value = fastavro.schemaless_reader(BytesIO(data), parsed, None)
        return msgspec.json.encode(value, enc_hook=str).decode()

    return decode


def _add_well_known(pool: Any, name: str) -> None:
    """Add one of the files that come with protobuf itself, and what it needs."""
    import importlib

    from google.protobuf import descriptor_pb2

    if name not in _WELL_KNOWN:
        raise PayloadError(f"the registry does not have {name}")
    module = importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    file = descriptor_pb2.FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(file)
    for dependency in file.dependency:
        _add_well_known(pool, dependency)
    pool.Add(file)


def _protobuf_decoder(pool: Any, file: Any) -> _DecodePayload:
    from google.protobuf import json_format, message_factory

    def decode(data: bytes) -> str:
        path, position = _message_path(data)
        rows, names = file.message_type, [file.package] if file.package else []
        for index in path:
            names.append(rows[index].name)
            rows = rows[index].nested_type
        message = message_factory.GetMessageClass(pool.FindMessageTypeByName(".".join(names)))()
        message.ParseFromString(data[position:])
        return str(json_format.MessageToJson(message, descriptor_pool=pool, preserving_proto_field_name=True))

    return decode


def _message_path(data: bytes) -> tuple[list[int], int]:
    """Read which message of the file it is: a zigzag count and indexes; a single 0 means the first message."""
    count, position = _zigzag(data, 0)
    if count == 0:
        return [0], position
    if not 0 < count <= _REFERENCES_MAX:
        raise PayloadError("the index of its message is not valid")
    path = []
    for _ in range(count):
        index, position = _zigzag(data, position)
        path.append(index)
    return path, position


def _zigzag(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(data) or shift > 28:
            raise PayloadError("it ends inside the index of its message")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value >> 1 ^ -(value & 1), position
