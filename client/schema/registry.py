"""A schema registry with Confluent's API, and the schemas that were read last.

Requests block, so callers on an event loop use the coroutines, which wait in a thread for what is not cached. A schema
never changes under its id, so it is asked for once.
"""

from __future__ import annotations

import asyncio
import base64
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import quote

import msgspec

from ottla.client.errors import KafkaConfigurationError, SerializationError
from ottla.client.net.security.endpoint import EndpointError, check_url, fetch
from ottla.client.schema.avro import AvroCodec
from ottla.client.schema.json_schema import JsonCodec
from ottla.client.schema.protobuf import ProtobufCodec
from ottla.client.schema.registered_schema import RegisteredSchema, SchemaKind, SchemaReference

_TIMEOUT_S: Final = 3.0
_SCHEMA_BYTES_MAX: Final = 1024 * 1024
# Of schemas and of failures; and of the text of all schemas together.
_KEPT_MAX: Final = 256
_KEPT_BYTES_MAX: Final = 16 * 1024 * 1024
# A schema that could not be read is not asked for again before this.
_FAILURE_S: Final = 30.0
_REFERENCES_MAX: Final = 64
_CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_NOT_FOUND: Final = 404

T = TypeVar("T")


class PayloadCodec(Protocol):
    """Turns values of one schema into bytes and back, without the frame."""

    kind: SchemaKind

    def encode(self, value: Any) -> bytes:
        """Return a value as bytes."""

    def decode(self, data: bytes) -> Any:
        """Return the value."""

    def to_json(self, data: bytes) -> str:
        """Return the value as JSON, for people."""

    def from_json(self, text: bytes) -> bytes:
        """Return as bytes what people write as JSON."""


class _Registered(msgspec.Struct):
    """What a registry answers about a schema of a subject; `version` only if it was looked up."""

    id: int
    version: int = -1


class SchemaRegistry:
    """A registry at a URL; for any thread."""

    def __init__(
        self,
        url: str,
        *,
        username: str | None = None,
        password: str | None = None,
        cafile: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """KafkaConfigurationError if the URL is not valid. A password needs https, except on this machine."""
        try:
            check_url(url, allow_http=password is None)
        except ValueError as error:
            raise KafkaConfigurationError(f"schema registry {url!r}: {error}") from error
        self._arguments = url, username, password, cafile
        self._url = url.rstrip("/")
        self._cafile = cafile
        self._allow_http = password is None
        self._headers = {"Accept": _CONTENT_TYPE, "Content-Type": _CONTENT_TYPE}
        if password is not None:
            self._headers["Authorization"] = "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()
        self._clock = clock
        # Under the lock: one thread asks, the others wait for its answer.
        self._lock = threading.Lock()
        self._codecs: OrderedDict[int, tuple[PayloadCodec, int]] = OrderedDict()
        self._codec_bytes = 0
        self._failures: OrderedDict[int, tuple[float, str]] = OrderedDict()
        self._ids: OrderedDict[tuple[str, RegisteredSchema], _Registered] = OrderedDict()

    def __reduce__(self) -> tuple[Callable[..., SchemaRegistry], tuple[str | None, ...]]:
        """A copy in another process has caches of its own, which all copies there share."""
        return _shared, self._arguments

    def codec(self, schema_id: int) -> PayloadCodec:
        """Return what reads payloads of a schema; SerializationError if it cannot be had. Blocks until it is cached."""
        known = self._codecs.get(schema_id)
        if known is not None:
            return known[0]
        with self._lock:
            known = self._codecs.get(schema_id)
            if known is not None:
                return known[0]
            failed_at, reason = self._failures.get(schema_id, (0.0, ""))
            if reason and self._clock() - failed_at < _FAILURE_S:
                raise SerializationError(reason)
            try:
                made, size = self._read(schema_id)
            except SerializationError as error:
                _keep(self._failures, schema_id, (self._clock(), error.detail))
                raise
            self._codecs[schema_id] = made, size
            self._codec_bytes += size
            while len(self._codecs) > _KEPT_MAX or (self._codec_bytes > _KEPT_BYTES_MAX and len(self._codecs) > 1):
                _, (_, freed) = self._codecs.popitem(last=False)
                self._codec_bytes -= freed
            return made

    async def load_codec(self, schema_id: int) -> PayloadCodec:
        """Return the same without blocking the event loop."""
        known = self._codecs.get(schema_id)
        return known[0] if known is not None else await asyncio.to_thread(self.codec, schema_id)

    async def to_json(self, schema_id: int, payload: bytes) -> tuple[SchemaKind, str]:
        """Return the kind of a schema, and a payload as JSON; SerializationError if that does not work."""
        codec = await self.load_codec(schema_id)
        return codec.kind, fitting(schema_id, codec.to_json, payload)

    def newest(self, subject: str) -> tuple[int, PayloadCodec]:
        """Return the id of the newest schema of a subject, and what writes with it; SerializationError. Blocks."""
        schema_id = self._ask(f"/subjects/{quote(subject, safe='')}/versions/latest", None, _Registered).id
        return schema_id, self.codec(schema_id)

    def register(self, subject: str, schema: RegisteredSchema) -> int:
        """Add a schema to a subject, if it is not there yet; return its id. Blocks if it is not cached."""
        return self._registered(subject, schema, f"/subjects/{quote(subject, safe='')}/versions").id

    def look_up(self, subject: str, schema: RegisteredSchema) -> int:
        """Return the id of a schema that the subject has; SerializationError if it has not. Blocks."""
        return self._registered(subject, schema, f"/subjects/{quote(subject, safe='')}").id

    def reference(self, name: str, subject: str, schema: RegisteredSchema) -> SchemaReference:
        """Register a schema that another one uses; return the reference to it. Blocks."""
        self.register(subject, schema)
        answer = self._ask(f"/subjects/{quote(subject, safe='')}", msgspec.json.encode(schema), _Registered)
        return SchemaReference(name, subject, answer.version)

    # Private methods.

    def _registered(self, subject: str, schema: RegisteredSchema, path: str) -> _Registered:
        known = self._ids.get((subject, schema))
        if known is not None:
            return known
        answer = self._ask(path, msgspec.json.encode(schema), _Registered)
        with self._lock:
            _keep(self._ids, (subject, schema), answer)
        return answer

    def _read(self, schema_id: int) -> tuple[PayloadCodec, int]:
        schema = self._get(f"/schemas/ids/{schema_id}")
        try:
            match schema.schemaType:
                case "AVRO":
                    texts = list(self._with_references(schema, "").values())
                    return AvroCodec(schema.schema, texts), sum(map(len, (schema.schema, *texts)))
                case "JSON":
                    return JsonCodec(schema.schema), len(schema.schema)
                case "PROTOBUF":
                    # As descriptors, which need no compiler.
                    serialized = "?format=serialized"
                    main = f"schema-{schema_id}.proto"
                    schema = self._get(f"/schemas/ids/{schema_id}{serialized}")
                    files = self._with_references(schema, serialized)
                    files[main] = schema.schema
                    return ProtobufCodec(main, files), sum(map(len, files.values()))
        except SerializationError:
            raise
        except Exception as error:  # a schema may be anything
            raise SerializationError(f"schema {schema_id} cannot be used: {error}") from error
        raise SerializationError(f"schema {schema_id} is for {schema.schemaType}, which is not known here")

    def _with_references(self, schema: RegisteredSchema, query: str) -> dict[str, str]:
        """Return what a schema refers to by name, each after what it refers to itself."""
        found: dict[str, str] = {}

        def add(references: tuple[SchemaReference, ...], depth: int) -> None:
            for each in references:
                if len(found) > _REFERENCES_MAX or depth > _REFERENCES_MAX:
                    raise SerializationError("the schema refers to too many others")
                if each.name not in found:
                    other = self._get(f"/subjects/{quote(each.subject, safe='')}/versions/{each.version}{query}")
                    add(other.references, depth + 1)
                    found[each.name] = other.schema

        add(schema.references, 0)
        return found

    def _get(self, path: str) -> RegisteredSchema:
        return self._ask(path, None, RegisteredSchema)

    def _ask(self, path: str, body: bytes | None, answer: type[T]) -> T:
        try:
            data = fetch(
                self._url + path,
                bytes_max=_SCHEMA_BYTES_MAX,
                body=body,
                headers=self._headers,
                cafile=self._cafile,
                timeout_seconds=_TIMEOUT_S,
                allow_http=self._allow_http,
            )
            return msgspec.json.decode(data, type=answer)
        except EndpointError as error:
            if error.status == _NOT_FOUND:
                raise SerializationError(f"the registry has no {path.removeprefix('/')}") from error
            if error.status is not None:
                raise SerializationError(f"the registry answered {error.status}") from error
            raise SerializationError(f"the registry cannot be read: {error}") from error
        except msgspec.MsgspecError as error:
            raise SerializationError(f"the registry cannot be read: {error}") from error


@lru_cache(maxsize=16)
def _shared(url: str, username: str | None, password: str | None, cafile: str | None) -> SchemaRegistry:
    return SchemaRegistry(url, username=username, password=password, cafile=cafile)


def fitting(schema_id: int, convert: Callable[[bytes], T], payload: bytes) -> T:
    """Convert a payload; SerializationError if it does not fit its schema."""
    try:
        return convert(payload)
    except SerializationError:
        raise
    except Exception as error:  # libraries raise anything for bytes that do not fit
        raise SerializationError(f"it does not fit schema {schema_id}: {error}") from error


def _keep(kept: OrderedDict[Any, Any], key: Any, value: Any) -> None:
    kept[key] = value
    while len(kept) > _KEPT_MAX:
        kept.popitem(last=False)
