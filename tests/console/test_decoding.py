"""Payloads for people: each format, and what is said when one does not fit."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from io import BytesIO
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.schema.decoding import DecodeAs, Decoder, Payload
from ottla.client.schema.registry import SchemaRegistry
from ottla.console.records.internal_topics import internal_record

AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None}],
}


async def decoded(data: bytes | None, how: DecodeAs = "auto", registry: SchemaRegistry | None = None) -> Payload:
    """Decode with the limit of a page."""
    return (await Decoder(registry, 1000).decode(data, how)).payload


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        (None, "null", None),
        (b"", "empty", ""),
        (b'{"id": 12345678901234567890, "x": 1.10}', "json", '{"id": 12345678901234567890, "x": 1.10}'),
        (b"[1, 2]", "json", "[1, 2]"),
        (b"-17", "json", "-17"),
        ("Grüße".encode(), "text", "Grüße"),
        (b"{not json", "text", "{not json"),
        (msgspec.msgpack.encode({"a": [1, None], "b": 2**63}), "msgpack", '{"a":[1,null],"b":9223372036854775808}'),
        (b"\x00\x00\x00\x00\x00\x00\x00\x2a", "hex", "000000000000002a"),
        (b"\xff\xfe\xfd", "hex", "fffefd"),
    ],
)
async def test_the_format_is_guessed(data: bytes | None, kind: str, text: str | None) -> None:
    """JSON is shown as it is, so that no number is rounded; what is not text is hexadecimal."""
    payload = await decoded(data)
    assert (payload.format, payload.text) == (kind, text)


@pytest.mark.parametrize("how", ["json", "text", "msgpack", "avro", "protobuf"])
async def test_a_format_that_does_not_fit_is_shown_as_hexadecimal(how: DecodeAs) -> None:
    """With the reason in words."""
    payload = await decoded(b"\xc1\xff{", how)
    assert (payload.format, payload.text) == ("hex", "c1ff7b")
    assert payload.note


async def test_long_values_are_cut() -> None:
    """The size tells how long it is."""
    payload = await decoded(b'"' + b"x" * 5000 + b'"')
    assert (payload.size, payload.is_truncated, len(payload.text or "")) == (5002, True, 1000)


@given(st.binary(max_size=64), st.sampled_from(["auto", "json", "text", "msgpack", "avro", "protobuf", "hex"]))
async def test_no_bytes_do_harm(data: bytes, how: DecodeAs) -> None:
    """Decoding never fails, and always has something to show."""
    found = await Decoder(None).decode(data, how, needs_value=True)
    assert found.payload.size == len(data)
    assert json.loads(msgspec.json.encode(found.payload))["format"]


@given(st.binary(max_size=64) | st.none(), st.binary(max_size=64) | st.none())
def test_no_record_of_an_internal_topic_does_harm(key: bytes | None, value: bytes | None) -> None:
    """Anybody with the right may write anything there."""
    for topic in ("__consumer_offsets", "__transaction_state"):
        internal_record(topic, key, value)
        internal_record(topic, b"\0\1" + (key or b""), b"\0\3" + (value or b""))
    assert internal_record("orders", key, value) is None


class Registry:
    """A schema registry with some schemas."""

    def __init__(self) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.asked: list[str] = []

    async def answer(self, request: web.Request) -> web.Response:
        """Answer as the registries of Confluent and Redpanda do."""
        self.asked.append(request.path_qs)
        schema = self.schemas.get(int(request.match_info["id"]))
        if schema is None:
            return web.json_response({"error_code": 40403}, status=404)
        if request.query.get("format") == "serialized":
            return web.json_response({**schema, "schema": schema["serialized"]})
        return web.json_response(schema)


@pytest_asyncio.fixture
async def registry() -> AsyncIterator[tuple[Registry, SchemaRegistry]]:
    """A registry on a free port, and a client of it."""
    served = Registry()
    app = web.Application()
    app.router.add_get("/schemas/ids/{id}", served.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield served, SchemaRegistry(f"http://127.0.0.1:{runner.addresses[0][1]}")
    await runner.cleanup()


def framed(schema_id: int, data: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + data


async def test_avro_is_decoded_with_the_schema_of_its_frame(registry: tuple[Registry, SchemaRegistry]) -> None:
    """The registry is asked once for each schema."""
    import fastavro

    served, client = registry
    served.schemas[7] = {"schema": json.dumps(AVRO)}
    data = BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(AVRO), {"id": 2**62, "note": "hi"})
    for _ in range(3):
        payload = await decoded(framed(7, data.getvalue()), registry=client)
    assert (payload.format, payload.text) == ("avro", '{"id":4611686018427387904,"note":"hi"}')
    assert (payload.schema_id, payload.note) == (7, "decoded as avro because it has schema 7")
    assert served.asked == ["/schemas/ids/7"]


async def test_protobuf_is_decoded_from_descriptors(registry: tuple[Registry, SchemaRegistry]) -> None:
    """The second message of the file, with a type that comes with protobuf; 64-bit numbers stay text."""
    from google.protobuf import descriptor_pb2, timestamp_pb2

    file = descriptor_pb2.FileDescriptorProto(name="x", package="shop", dependency=["google/protobuf/timestamp.proto"])
    file.message_type.add(name="First")
    second = file.message_type.add(name="Second")
    second.field.add(name="total", number=1, type=3, label=1)
    second.field.add(name="at", number=2, type=11, label=1, type_name=".google.protobuf.Timestamp")
    served, client = registry
    served.schemas[9] = {
        "schemaType": "PROTOBUF",
        "schema": "",
        "serialized": base64.b64encode(file.SerializeToString()).decode(),
    }
    at = timestamp_pb2.Timestamp(seconds=1_700_000_000).SerializeToString()
    body = b"\x08\x80\x80\x80\x80\x80\x80\x80\x80\x40" + b"\x12" + bytes([len(at)]) + at
    payload = await decoded(framed(9, b"\x02\x02" + body), registry=client)
    assert payload.format == "protobuf", payload.note
    assert json.loads(payload.text or "") == {"total": str(2**62), "at": "2023-11-14T22:13:20Z"}


async def test_an_unknown_schema_is_not_asked_for_again_at_once(registry: tuple[Registry, SchemaRegistry]) -> None:
    """A topic full of such records would ask the registry thousands of times."""
    served, client = registry
    for _ in range(3):
        payload = await decoded(framed(1, b"abc"), registry=client)
    assert payload.note == "the registry has no schemas/ids/1"
    assert len(served.asked) == 1


async def test_bytes_that_do_not_fit_their_schema_say_so(registry: tuple[Registry, SchemaRegistry]) -> None:
    """And are shown all the same."""
    served, client = registry
    served.schemas[7] = {"schema": json.dumps(AVRO)}
    payload = await decoded(framed(7, b"\xff" * 20), registry=client)
    assert payload.format == "hex"
    assert (payload.note or "").startswith("it does not fit schema 7")


@pytest.mark.parametrize(
    "data",
    [b"{not json", b"1e400", b"[" * 100_000 + b"]" * 100_000, b"\xff"],
    ids=["no JSON", "a huge number", "too deep", "no text"],
)
async def test_no_payload_with_a_json_schema_does_harm(registry: tuple[Registry, SchemaRegistry], data: bytes) -> None:
    """Nobody checks what a producer writes after the frame."""
    served, client = registry
    served.schemas[7] = {"schemaType": "JSON", "schema": "{}"}
    found = await Decoder(client).decode(framed(7, data), needs_value=True)
    assert (found.payload.size, found.payload.schema_id) == (len(data) + 5, None)
    assert (found.payload.note or "").startswith("it does not fit schema 7")
