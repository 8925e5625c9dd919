"""`ottla topic consume --decode` and `produce --schema` with a small schema registry, on a real broker."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator
from typing import Any, get_args

import msgspec
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tests.client.cli.conftest import Ottla
from tests.client.schema.registry_server import RegistryServer, serving

from ottla.client.cli.records.topic_records import Decoding
from ottla.client.schema.decoding import DecodeAs
from ottla.schema import AvroSerializer, JsonSchemaSerializer, ProtobufSerializer, SchemaRegistry

AVRO = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})
UNKNOWN_SCHEMA = b"\0\0\0\0\x63\xff\xfe"
NUMBER = (42).to_bytes(8, "big")


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    """A registry on a free port."""
    with serving() as made:
        yield made


@pytest.fixture
def registry(server: RegistryServer, monkeypatch: pytest.MonkeyPatch) -> SchemaRegistry:
    """A client of it, to write with; commands find it in the environment."""
    monkeypatch.setenv("OTTLA_SCHEMA_REGISTRY", server.url)
    return SchemaRegistry(server.url)


def write(ottla: Ottla, topic: str, *records: tuple[bytes | None, bytes | None]) -> None:
    """Write keys and values as they are, to one partition."""

    def plain(data: bytes | None) -> dict[str, str] | None:
        return None if data is None else {"base64": base64.b64encode(data).decode()}

    lines = [json.dumps({"key": plain(key), "value": plain(value)}) for key, value in records]
    assert ottla("topic", "create", topic, "-p", "1").code == 0
    assert ottla("topic", "produce", topic, "--json", stdin="\n".join(lines).encode()).code == 0


def avro(registry: SchemaRegistry, number: int) -> bytes | None:
    return AvroSerializer(registry, AVRO, subject="orders-value")({"id": number})


def protobuf(registry: SchemaRegistry) -> bytes | None:
    file = descriptor_pb2.FileDescriptorProto(name="orders.proto", package="shop", syntax="proto3")
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=3, label=1)
    order.field.add(name="note", number=2, type=9, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    made: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    return ProtobufSerializer(registry, made, subject="bolts-value")(made(id=2**62, note="bolt"))


def test_the_choices_are_those_of_the_decoder() -> None:
    """The command line names them once more, to start fast."""
    assert [each.value for each in Decoding] == list(get_args(DecodeAs))


def test_keys_and_values_are_shown_by_their_schemas(ottla: Ottla, topic: str, registry: SchemaRegistry) -> None:
    """Avro, Protobuf and JSON Schema, next to what has no schema; nothing is said about what was decoded."""
    key = JsonSchemaSerializer(registry, '{"type": "object"}', subject="orders-key")({"customer": 1.5})
    write(
        ottla,
        topic,
        (key, avro(registry, 2**62)),
        (None, protobuf(registry)),
        (b"k", msgspec.msgpack.encode({"a": [1, None]})),
        (b"k", b'{"id": 1.10}'),
        (b"", "Grüße".encode()),
        (b"\xff\xfe", None),
    )

    shown = ottla("topic", "consume", topic, "-e", "--decode", "auto", "-f", "%k|%s\\n", "--null", "-")
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.splitlines() == [
        '{"customer":1.5}|{"id":4611686018427387904}',
        '-|{"id": "4611686018427387904", "note": "bolt"}',
        'k|{"a":[1,null]}',
        'k|{"id": 1.10}',
        "|Grüße",
        "fffe|-",
    ]
    data = ottla("topic", "consume", topic, "-e", "--decode", "auto", "--json")
    assert (data.code, data.err) == (0, "")
    assert [(item["key"], item["value"]) for item in data.items] == [
        ({"customer": 1.5}, {"id": 2**62}),
        (None, {"id": str(2**62), "note": "bolt"}),
        ("k", {"a": [1, None]}),
        ("k", {"id": 1.1}),
        ("", "Grüße"),
        ({"base64": "//4="}, None),
    ]
    tail = ottla("topic", "tail", topic, "-n", "1", "--decode", "auto", "--format", "yaml")
    assert "  value:\n    id: 4611686018427387904\n" in tail.out
    group = ottla("topic", "consume", topic, "-g", topic, "-n", "1", "--decode", "auto")
    assert group.out == '{"id":4611686018427387904}\n'


def test_what_cannot_be_decoded_is_shown_with_one_line(
    ottla: Ottla, topic: str, registry: SchemaRegistry, server: RegistryServer
) -> None:
    """A schema that nobody has, bytes that do not fit theirs, another format, and a registry that is down."""
    write(ottla, topic, (b"k", UNKNOWN_SCHEMA), (b"k", b"\0\0\0\0\1"), (b"k", b"plain"), (b"k", avro(registry, 7)))

    shown = ottla("topic", "consume", topic, "-e", "--decode", "auto")
    assert (shown.code, shown.out.splitlines()) == (0, ["0000000063fffe", "0000000001", "plain", '{"id":7}'])
    assert shown.err == f"{topic}-0 at offset 0: the value is not decoded: the registry has no schemas/ids/99\n"
    data = ottla("topic", "consume", topic, "-e", "--decode", "auto", "--json")
    assert data.items[0]["value"] == {"base64": base64.b64encode(UNKNOWN_SCHEMA).decode()}

    strict = ottla("topic", "consume", topic, "-o", "2:4", "--decode", "avro", "-f", "%s\\n")
    assert (strict.code, strict.out.splitlines()) == (0, ["plain", '{"id":7}'])
    assert strict.err.count("\n") == 3
    assert f"{topic}-0 at offset 2: the value is not decoded: no schema id" in strict.err
    other = ottla("topic", "consume", topic, "-o", "3:4", "--decode", "protobuf", "--json")
    assert [item["key"] for item in other.items] == ["k"]
    assert "the value is not decoded: schema 1 is for avro\n" in other.err

    server.status = 503
    down = ottla("topic", "consume", topic, "-o", "3:4", "--decode", "auto")
    assert (down.code, down.out) == (0, "00000000010e\n")
    assert down.err.endswith("the value is not decoded: the registry answered 503\n")


def test_without_a_registry_formats_are_guessed(ottla: Ottla, topic: str) -> None:
    """What may name a schema is said once: numbers in eight bytes look like that, too."""
    write(ottla, topic, (NUMBER, b"[1]"), (NUMBER, b"[2]"))

    shown = ottla("topic", "consume", topic, "-e", "--decode", "auto", "-f", "%k %s\\n")
    assert (shown.code, shown.out.splitlines()) == (0, ["000000000000002a [1]", "000000000000002a [2]"])
    assert shown.err.count("\n") == 1
    assert "name it with --schema-registry" in shown.err
    as_hex = ottla("topic", "consume", topic, "-e", "--decode", "hex", "--json")
    assert [(item["key"], item["value"]) for item in as_hex.items] == [
        ("000000000000002a", "5b315d"),
        ("000000000000002a", "5b325d"),
    ]
    assert as_hex.err == ""


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_deep_json_is_shown(ottla: Ottla, topic: str, output: str) -> None:
    """As data or as text, but without a traceback."""
    write(ottla, topic, *[(None, b"[" * depth + b"]" * depth) for depth in (300, 900, 5000)], (None, b"1e400"))

    shown = ottla("topic", "consume", topic, "-e", "--decode", "auto", "--format", output)
    assert shown.code == 0
    assert "Traceback" not in shown.err
    assert "1e400" in shown.out


def test_what_is_missing_is_said_before_anything_is_read(
    ottla: Ottla, topic: str, registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library, with the command that installs it; the registry, with the option that names it."""
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "fastavro", None)
        for how in ("auto", "avro"):
            missing = ottla("topic", "consume", topic, "--decode", how)
            assert (missing.code, missing.out) == (1, "")
            assert missing.err == "Error: fastavro is not installed: pip install 'ottla[schema]'\n"
    wrong = ottla("topic", "consume", topic, "--decode", "auto", "--schema-registry", "registry:8081")
    assert (wrong.code, wrong.err.count("\n")) == (2, 1)
    assert "schema registry 'registry:8081'" in wrong.err
    monkeypatch.delenv("OTTLA_SCHEMA_REGISTRY")
    unnamed = ottla("topic", "consume", topic, "--decode", "avro")
    assert unnamed.code == 2
    assert "--schema-registry URL or OTTLA_SCHEMA_REGISTRY" in unnamed.err


def test_values_are_written_with_the_newest_schema(
    ottla: Ottla, topic: str, registry: SchemaRegistry, server: RegistryServer
) -> None:
    """Lines of JSON, what `consume --decode auto --json` prints, and tombstones; each kind of schema."""
    avro(registry, 1)
    protobuf(registry)
    JsonSchemaSerializer(registry, '{"type": "string"}', subject="names-value")("x")
    newest = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "number", "type": "long"}]})
    AvroSerializer(registry, newest, subject="orders-value")({"number": 1})
    assert ottla("topic", "create", topic, "-p", "1").code == 0

    lines = b'k:{"number": 4611686018427387904}\nk:\n'
    orders = ottla("topic", "produce", topic, "-K", ":", "-Z", "--schema", "orders-value", stdin=lines)
    bolts = ottla("topic", "produce", topic, '{"id": "5", "note": "nut"}', "--schema", "bolts-value")
    items = b'{"value": "Delft"}\n{"value": null}\n'
    names = ottla("topic", "produce", topic, "--json", "--schema", "names-value", stdin=items)

    assert [each.code for each in (orders, bolts, names)] == [0, 0, 0], orders.err + bolts.err + names.err
    first = ottla("topic", "consume", topic, "-n", "1", "--decode", "hex").out
    assert first.startswith("0000000004")
    read = ottla("topic", "consume", topic, "-e", "--decode", "auto", "--json").items
    assert [item["value"] for item in read] == [{"number": 2**62}, None, {"id": "5", "note": "nut"}, "Delft", None]


@pytest.mark.parametrize(
    ("value", "subject", "reason"),
    [
        ('{"id": 1.5}', "orders-value", "Order.id is <1.5>"),
        ('{"id": 1, "nmae": 2}', "orders-value", "nmae"),
        ("{}", "orders-value", "id"),
        ("{", "orders-value", "truncated"),
        ('{"id": "x"}', "bolts-value", "id"),
        ('{"nmae": 1}', "bolts-value", "nmae"),
        ("[1]", "names-value", "[1] is not of type 'string'"),
    ],
)
def test_values_that_do_not_fit_are_refused(
    ottla: Ottla, topic: str, registry: SchemaRegistry, value: str, subject: str, reason: str
) -> None:
    """In one sentence, with the number of the record."""
    avro(registry, 1)
    protobuf(registry)
    JsonSchemaSerializer(registry, '{"type": "string"}', subject="names-value")("x")
    assert ottla("topic", "create", topic, "-p", "1").code == 0

    refused = ottla("topic", "produce", topic, value, "--schema", subject)
    (said,) = [line for line in refused.err.splitlines() if line.startswith("Error:")]
    assert refused.code == 1
    assert said.startswith(f"Error: Record 1: the value does not fit the schema of {subject}: ")
    assert reason in said
    assert "0 records written" in refused.err


def test_a_schema_that_cannot_be_had_is_said_before_anything_is_written(
    ottla: Ottla, topic: str, registry: SchemaRegistry, server: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No subject, no library, no answer, no registry."""
    unknown = ottla("topic", "produce", topic, "1", "--schema", "not-there")
    assert (unknown.code, unknown.err) == (
        1,
        "Error: --schema not-there: the registry has no subjects/not-there/versions/latest\n",
    )
    avro(registry, 1)
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "fastavro", None)
        missing = ottla("topic", "produce", topic, "1", "--schema", "orders-value")
    assert missing.err == "Error: --schema orders-value: fastavro is not installed: pip install 'ottla[schema]'\n"
    server.status = 503
    assert ottla("topic", "produce", topic, "1", "--schema", "orders-value").err.endswith("answered 503\n")
    monkeypatch.delenv("OTTLA_SCHEMA_REGISTRY")
    assert ottla("topic", "produce", topic, "1", "--schema", "orders-value").code == 2
