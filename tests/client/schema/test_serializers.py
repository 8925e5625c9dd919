"""Serializers and deserializers against a registry, alone and in clients on a broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tests.client.schema.registry_server import RegistryServer, serving
from tests.kit.broker_process import BrokerProcess
from tests.kit.clock import FakeClock

from ottla import Consumer, Producer
from ottla.client.schema import registry as registry_module
from ottla.client.schema.framing import schema_id_of
from ottla.client.schema.registered_schema import RegisteredSchema
from ottla.client.schema.serializers import NewestSchemaSerializer
from ottla.errors import KafkaConfigurationError, SerializationError
from ottla.schema import AvroSerializer, JsonSchemaSerializer, ProtobufSerializer, SchemaDeserializer, SchemaRegistry

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None}],
    }
)
JSON = json.dumps(
    {"type": "object", "properties": {"id": {"type": "integer", "minimum": 1}}, "required": ["id"]},
)


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    """A registry on a free port."""
    with serving() as made:
        yield made


@pytest.fixture
def registry(server: RegistryServer) -> SchemaRegistry:
    """A client of it that knows nothing yet."""
    return SchemaRegistry(server.url)


def message_classes() -> tuple[Any, Any]:
    """Return the class of a message that uses a message of another file, and that of a message inside another."""
    pool = descriptor_pool.DescriptorPool()
    common = descriptor_pb2.FileDescriptorProto(name="common/money.proto", package="common", syntax="proto3")
    money = common.message_type.add(name="Money")
    money.field.add(name="cents", number=1, type=3, label=1)
    orders = descriptor_pb2.FileDescriptorProto(
        name="orders.proto", package="shop", syntax="proto3", dependency=["common/money.proto"]
    )
    orders.message_type.add(name="Nothing")
    order = orders.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=3, label=1)
    order.field.add(name="total", number=2, type=11, label=1, type_name=".common.Money")
    line = order.nested_type.add(name="Line")
    line.field.add(name="article", number=1, type=9, label=1)
    pool.Add(common)
    pool.Add(orders)
    made = [
        message_factory.GetMessageClass(pool.FindMessageTypeByName(name)) for name in ("shop.Order", "shop.Order.Line")
    ]
    return made[0], made[1]


def test_avro_is_written_and_read(server: RegistryServer, registry: SchemaRegistry) -> None:
    """The registry is asked once to register and once by the reader, however many values there are."""
    serializer = AvroSerializer(registry, AVRO, subject="orders-value")
    data = [serializer({"id": number, "note": "hi"}) for number in range(5)]
    reader = SchemaDeserializer(SchemaRegistry(server.url))

    assert [reader(each) for each in data] == [{"id": number, "note": "hi"} for number in range(5)]
    assert (data[0] or b"")[:5] == b"\0\0\0\0\1"
    assert server.requests == [("POST", "/subjects/orders-value/versions"), ("GET", "/schemas/ids/1")]
    assert server.subjects == {"orders-value": [1]}


def test_avro_schemas_may_name_others(server: RegistryServer, registry: SchemaRegistry) -> None:
    """Those that the registry has as references, in the order in which they need each other."""
    city = json.dumps({"type": "record", "name": "City", "fields": [{"name": "name", "type": "string"}]})
    place = json.dumps({"type": "record", "name": "Place", "fields": [{"name": "city", "type": "City"}]})
    person = json.dumps({"type": "record", "name": "Person", "fields": [{"name": "lives", "type": "Place"}]})
    server.schemas = {
        1: {"schema": city},
        2: {"schema": place, "references": [{"name": "City", "subject": "city", "version": 1}]},
        3: {"schema": person, "references": [{"name": "Place", "subject": "place", "version": 1}]},
    }
    server.subjects = {"city": [1], "place": [2]}

    assert SchemaDeserializer(registry)(b"\0\0\0\0\3" + b"\x0aDelft") == {"lives": {"city": {"name": "Delft"}}}


def test_json_is_validated_when_it_is_written(server: RegistryServer, registry: SchemaRegistry) -> None:
    """Dataclasses are values, too; a value that does not fit says where."""

    @dataclass
    class Order:
        id: int

    serializer = JsonSchemaSerializer(registry, JSON, subject="orders-value")
    assert SchemaDeserializer(registry)(serializer(Order(7))) == {"id": 7}
    assert server.schemas[1]["schemaType"] == "JSON"
    with pytest.raises(SerializationError, match=r"orders-value: \$.id: 0 is less than the minimum"):
        serializer({"id": 0})


def test_protobuf_is_written_and_read(server: RegistryServer, registry: SchemaRegistry) -> None:
    """With a message of another file, and with one inside another; the reader has no class of theirs."""
    order, line = message_classes()
    value = order(id=2**62)
    value.total.cents = 5
    data = ProtobufSerializer(registry, order, subject="orders-value")(value)
    inner = ProtobufSerializer(registry, line, subject="lines-value")(line(article="bolt"))
    reader = SchemaDeserializer(SchemaRegistry(server.url))

    read = reader(data)
    assert (read.id, read.total.cents, read.DESCRIPTOR.full_name) == (2**62, 5, "shop.Order")
    assert reader(inner).article == "bolt"
    assert (data or b"")[5:7] == b"\x02\x02"
    assert (inner or b"")[5:8] == b"\x04\x02\x00"
    assert set(server.subjects) == {"common/money.proto", "orders-value", "lines-value"}
    with pytest.raises(SerializationError, match="a Line is no Order"):
        ProtobufSerializer(registry, order, subject="orders-value")(line())


def test_null_stays_null(registry: SchemaRegistry) -> None:
    """A tombstone has no schema."""
    assert AvroSerializer(registry, AVRO, subject="s")(None) is None
    assert SchemaDeserializer(registry)(None) is None


def test_without_auto_register_the_schema_must_be_there(server: RegistryServer, registry: SchemaRegistry) -> None:
    """A producer may not be allowed to change what a topic holds."""
    strict = AvroSerializer(registry, AVRO, subject="orders-value", auto_register=False)
    with pytest.raises(SerializationError, match="the registry has no subjects/orders-value"):
        strict({"id": 1})
    AvroSerializer(SchemaRegistry(server.url), AVRO, subject="orders-value")({"id": 1})

    assert schema_id_of(strict({"id": 1}) or b"") == 1


@pytest.mark.parametrize("value", [{"id": "text"}, {"id": 1.5}, {"id": 1, "idd": 2}, {}, 5])
def test_a_value_that_does_not_fit_is_refused(registry: SchemaRegistry, value: Any) -> None:
    """With the subject, whatever the library raises. It would cut 1.5 to 1, and drop fields that it does not know.

    The command line writes by the same rule.
    """
    because = "does not fit the schema of orders-value"
    with pytest.raises(SerializationError, match=because):
        AvroSerializer(registry, AVRO, subject="orders-value")(value)
    registry.register("orders-value", RegisteredSchema(AVRO))
    with pytest.raises(SerializationError, match=because):
        NewestSchemaSerializer(registry, subject="orders-value")(msgspec.json.encode(value))


def test_bytes_that_do_not_fit_are_refused(registry: SchemaRegistry) -> None:
    """Those without a frame, and those with another schema's payload."""
    AvroSerializer(registry, AVRO, subject="orders-value")({"id": 1})
    reader = SchemaDeserializer(registry)
    with pytest.raises(SerializationError, match="no schema id"):
        reader(b"{}")
    with pytest.raises(SerializationError, match="it does not fit schema 1"):
        reader(b"\0\0\0\0\1" + b"\xff" * 20)


def test_a_schema_that_cannot_be_had_is_not_asked_for_at_once_again(server: RegistryServer) -> None:
    """A topic full of such records would ask thousands of times; later it may be there."""
    clock = FakeClock(1000.0)
    reader = SchemaDeserializer(SchemaRegistry(server.url, clock=clock))
    for _ in range(3):
        with pytest.raises(SerializationError, match="the registry has no schemas/ids/1"):
            reader(b"\0\0\0\0\1x")
    assert len(server.requests) == 1
    server.schemas[1] = {"schema": '"long"'}
    clock.now += 60

    assert reader(b"\0\0\0\0\1\x02") == 1


@pytest.mark.parametrize(("kept", "size"), [(2, 1 << 20), (100, 15)], ids=["by number", "by bytes"])
def test_the_cache_is_bounded(
    server: RegistryServer, registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch, kept: int, size: int
) -> None:
    """By the number of schemas, and by their bytes."""
    monkeypatch.setattr(registry_module, "_KEPT_MAX", kept)
    monkeypatch.setattr(registry_module, "_KEPT_BYTES_MAX", size)
    server.schemas = {number: {"schema": '"long"'} for number in range(1, 6)}
    for number in range(1, 6):
        registry.codec(number)

    assert list(registry._codecs) == [4, 5]
    assert registry._codec_bytes == 2 * len('"long"')


def test_a_registry_that_is_broken_says_how(server: RegistryServer) -> None:
    """Its status, or that it does not answer."""
    server.status = 500
    with pytest.raises(SerializationError, match="the registry answered 500"):
        SchemaRegistry(server.url).codec(1)
    with pytest.raises(SerializationError, match="the registry cannot be read"):
        SchemaRegistry("http://127.0.0.1:1").codec(1)


def test_a_password_goes_only_where_nobody_listens(server: RegistryServer) -> None:
    """Not over http to another machine."""
    with pytest.raises(KafkaConfigurationError, match="https"):
        SchemaRegistry("http://registry.example.org:8081", username="u", password="p")
    with pytest.raises(SerializationError):
        SchemaRegistry(server.url, username="user", password="secret").codec(1)

    assert server.authorizations == {"Basic dXNlcjpzZWNyZXQ="}


async def test_clients_take_serializers_as_options(broker: BrokerProcess, topic: str, server: RegistryServer) -> None:
    """Keys in JSON and values in Avro; the event loop waits for nothing if they are loaded before."""
    registry = SchemaRegistry(server.url)
    keys = JsonSchemaSerializer(registry, '{"type": "string"}', subject=f"{topic}-key")
    values = AvroSerializer(registry, AVRO, subject=f"{topic}-value")
    assert (await keys.load(), await values.load()) == (1, 2)
    async with Producer(bootstrap_servers=broker.bootstrap, key_serializer=keys, value_serializer=values) as producer:
        await producer.send_and_wait(topic, {"id": 1, "note": None}, key="customer")
        await producer.send_and_wait(topic, None, key="customer")
        with pytest.raises(SerializationError):
            await producer.send(topic, {"id": "x"}, key="customer")

    reader = SchemaDeserializer(SchemaRegistry(server.url))
    async with Consumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="earliest",
        key_deserializer=reader,
        value_deserializer=reader,
    ) as consumer:
        records = [await consumer.getone() for _ in range(2)]
    assert [(record.key, record.value) for record in records] == [
        ("customer", {"id": 1, "note": None}),
        ("customer", None),
    ]
    async with Consumer(topic, bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
        assert await reader.decode((await consumer.getone()).value) == {"id": 1, "note": None}
