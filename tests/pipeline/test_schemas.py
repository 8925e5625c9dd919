"""Columns with schemas of a registry: read and written in Spark, and every type there and back."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - as everybody names it
from pyspark.sql.pandas.types import to_arrow_type
from tests.client.schema.registry_server import RegistryServer, serving
from tests.pipeline.conftest import MakeTopic

from ottla.client.schema.framing import framed
from ottla.client.schema.registered_schema import RegisteredSchema
from ottla.client.testing.fault_cluster import FaultCluster
from ottla.errors import SerializationError
from ottla.pipeline.schemas import from_registry, to_registry
from ottla.pipeline.schemas.conversion import conversion, decoded, encoded
from ottla.pipeline.sources.errors import SourceOptionError
from ottla.schema import AvroSerializer, JsonSchemaSerializer, ProtobufSerializer, SchemaDeserializer, SchemaRegistry
from ottla.sync import Consumer, Producer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK_PAGE = Path(__file__).parents[2] / "docs" / "SPARK.md"


def record(name: str, *fields: tuple[str, Any]) -> dict[str, Any]:
    """Return a record of Avro."""
    return {"type": "record", "name": name, "fields": [{"name": each, "type": type_} for each, type_ in fields]}


def logical(type_: str, name: str, **more: int) -> dict[str, Any]:
    """Return a logical type of Avro."""
    return {"type": type_, "logicalType": name, **more}


ORDER = record("Order", ("id", "long"), ("total", "double"))
AVRO = record(
    "All",
    ("flag", "boolean"),
    ("number", "int"),
    ("ratio", "float"),
    ("data", "bytes"),
    ("maybe", ["null", "string"]),
    ("price", logical("bytes", "decimal", precision=9, scale=2)),
    ("day", logical("int", "date")),
    ("at", logical("long", "timestamp-millis")),
    ("of_day", logical("int", "time-millis")),
    ("key", logical("string", "uuid")),
    ("colour", {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}),
    ("other_colour", "Colour"),
    ("lines", {"type": "array", "items": record("Line", ("article", "string"))}),
    ("tags", {"type": "map", "values": ["null", "long"]}),
    ("wide", ["int", "long"]),
    ("mixed", ["null", "string", "boolean"]),
    ("tree", ["null", record("Tree", ("name", "string"), ("child", ["null", "Tree"]))]),
)
AVRO_ROW: dict[str, Any] = {
    "flag": True,
    "number": 7,
    "ratio": 0.5,
    "data": b"\0\xff",
    "maybe": None,
    "price": Decimal("12.50"),
    "day": date(2026, 11, 17),
    "at": datetime(2026, 11, 17, 20, 0, 0, 125_000, UTC),
    "of_day": 3_600_000,
    "key": "5e5cd9a1-8a3c-4b6e-9f4b-0d3a7a2c9a11",
    "colour": "RED",
    "other_colour": "BLUE",
    "lines": [{"article": "a"}, {"article": "b"}],
    "tags": [("x", 1), ("y", None)],
    "wide": 2**40,
    "mixed": '"text"',
    "tree": {"name": "root", "child": '{"name":"leaf","child":null}'},
}
JSON = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "total": {"type": "number"},
        "note": {"type": ["string", "null"]},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
        "tags": {"type": "object", "additionalProperties": {"type": "integer"}},
        "one": {"oneOf": [{"type": "null"}, {"type": "boolean"}]},
        "any": {},
    },
    "required": ["id"],
    "$defs": {"line": {"type": "object", "properties": {"article": {"type": "string"}}}},
}
JSON_ROW: dict[str, Any] = {
    "id": 2**62,
    "total": 1.0,
    "note": None,
    "lines": [{"article": "a"}],
    "tags": [("x", 1)],
    "one": True,
    "any": '{"b":[1]}',
}


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    """A registry on a free port."""
    with serving() as made:
        yield made


@pytest.fixture
def registry(server: RegistryServer) -> SchemaRegistry:
    """A client of it."""
    return SchemaRegistry(server.url)


def message_class() -> Any:
    """Return the class of a message with fields of many kinds."""
    label, text, number, message, enum = 1, 9, 3, 11, 14
    pool = descriptor_pool.DescriptorPool()
    time_file = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(time_file)
    pool.Add(time_file)
    file = descriptor_pb2.FileDescriptorProto(
        name="orders.proto", package="shop", syntax="proto3", dependency=["google/protobuf/timestamp.proto"]
    )
    colour = file.enum_type.add(name="Colour")
    colour.value.add(name="RED", number=0)
    colour.value.add(name="BLUE", number=1)
    order = file.message_type.add(name="Order")
    line = order.nested_type.add(name="Line")
    line.field.add(name="article", number=1, type=text, label=label)
    entry = order.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=text, label=label)
    entry.field.add(name="value", number=2, type=message, label=label, type_name=".shop.Order.Line")
    order.field.add(name="id", number=1, type=number, label=label)
    order.field.add(name="large", number=2, type=4, label=label)
    order.field.add(name="colour", number=3, type=enum, label=label, type_name=".shop.Colour")
    order.field.add(name="line", number=4, type=message, label=label, type_name=".shop.Order.Line")
    order.field.add(name="lines", number=5, type=message, label=3, type_name=".shop.Order.Line")
    order.field.add(name="tags", number=6, type=message, label=3, type_name=".shop.Order.TagsEntry")
    order.field.add(name="at", number=7, type=message, label=label, type_name=".google.protobuf.Timestamp")
    order.field.add(name="data", number=8, type=12, label=label)
    order.field.add(name="parent", number=9, type=message, label=label, type_name=".shop.Order")
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


PROTOBUF_ROW: dict[str, Any] = {
    "id": 2**62,
    "large": Decimal(2**64 - 1),
    "colour": "BLUE",
    "line": None,
    "lines": [{"article": "a"}],
    "tags": [("x", {"article": "b"})],
    "at": datetime(2026, 11, 17, 20, 0, 0, 125_000, UTC),
    "data": b"\0",
    "parent": None,
}


@pytest.mark.parametrize("kind", ["AVRO", "JSON", "PROTOBUF"])
def test_every_type_survives_the_way_there_and_back(registry: SchemaRegistry, kind: str) -> None:
    """Rows become payloads that our deserializer reads, and the same rows again; null stays null."""
    if kind == "PROTOBUF":
        order = message_class()
        ProtobufSerializer(registry, order, subject="s")(order())
        schema_id, row = registry.newest("s")[0], PROTOBUF_ROW
    else:
        schema = json.dumps(AVRO if kind == "AVRO" else JSON)
        schema_id, row = (
            registry.register("s", RegisteredSchema(schema, kind)),
            AVRO_ROW if kind == "AVRO" else JSON_ROW,
        )
    data_type = conversion(registry.codec(schema_id)).column.data_type
    rows = pa.array([row, None], to_arrow_type(data_type, timezone="UTC"))

    payloads = encoded(rows, registry, schema_id, "s")
    assert SchemaDeserializer(registry)(payloads[0].as_py()) is not None
    assert decoded(payloads, registry, schema_id, is_strict=True).to_pylist() == [row, None]


def test_a_column_has_the_newest_schema_and_records_have_theirs(registry: SchemaRegistry) -> None:
    """A field that an old record lacks has its default; one that the newest schema has dropped is left out."""
    old = AvroSerializer(registry, json.dumps(record("Order", ("id", "long"), ("gone", "string"))), subject="s")
    first = old({"id": 1, "gone": "x"})
    newer = record("Order", ("id", "long"))
    newer["fields"].append({"name": "total", "type": "double", "default": 0.5})
    schema_id = registry.register("s", RegisteredSchema(json.dumps(newer)))
    second = AvroSerializer(registry, json.dumps(newer), subject="s")({"id": 2, "total": 3.0})

    rows = decoded(pa.array([first, second]), registry, schema_id, is_strict=True)
    assert rows.to_pylist() == [{"id": 1, "total": 0.5}, {"id": 2, "total": 3.0}]


def test_what_cannot_be_decoded_is_an_error_or_null(registry: SchemaRegistry) -> None:
    """No frame, an unknown schema, another kind of schema, torn bytes, and a value that the column cannot hold."""
    schema_id = registry.register("s", RegisteredSchema(json.dumps(JSON), "JSON"))
    as_avro = AvroSerializer(registry, json.dumps(ORDER), subject="t")({"id": 1, "total": 1.0})
    good = JsonSchemaSerializer(registry, json.dumps(JSON), subject="s")({"id": 1})
    bad = [b"text", framed(99, b"{}"), as_avro, framed(schema_id, b"{"), framed(schema_id, b'{"id": "text"}')]
    nothing = dict.fromkeys(JSON_ROW)

    for payload in bad:
        with pytest.raises(SerializationError, match=r"a record (cannot be decoded|does not fit the column): "):
            decoded(pa.array([payload], pa.binary()), registry, schema_id, is_strict=True)
    rows = decoded(pa.array([good, *bad], pa.binary()), registry, schema_id, is_strict=False)
    assert rows.to_pylist() == [{**nothing, "id": 1}, *[None] * len(bad)]


def test_a_row_that_does_not_fit_is_refused(registry: SchemaRegistry) -> None:
    """With the subject and the reason."""
    schema_id = registry.register("orders-value", RegisteredSchema(json.dumps(ORDER)))
    with pytest.raises(SerializationError, match=r"a row does not fit the schema of orders-value: .*total"):
        encoded(pa.array([{"id": 1}]), registry, schema_id, "orders-value")


def test_a_registry_travels_to_workers_without_its_caches(server: RegistryServer) -> None:
    """Copies in one process are the same, so that tasks ask for a schema once."""
    made = SchemaRegistry(server.url, username="alice", password="secret")
    first, second = (pickle.loads(pickle.dumps(made)) for _ in range(2))
    assert first is second
    assert first is not made
    first.register("s", RegisteredSchema(json.dumps(ORDER)))
    assert server.authorizations == {"Basic YWxpY2U6c2VjcmV0"}


def test_records_with_schemas_are_read_and_written_as_the_page_says(
    spark: SparkSession, pipeline_cluster: FaultCluster, pipeline_topic: MakeTopic, registry: SchemaRegistry
) -> None:
    """The example of docs/SPARK.md, on topics of our own."""
    orders, invoices = pipeline_topic(), pipeline_topic()
    serializer = AvroSerializer(registry, json.dumps(ORDER), subject=f"{orders}-value")
    with Producer(bootstrap_servers=pipeline_cluster.bootstrap_servers, value_serializer=serializer) as producer:
        for number, total in enumerate((50.0, 150.0, 250.5)):
            producer.send(orders, {"id": number, "total": total})

    section = SPARK_PAGE.read_text().split("## Schemas of a registry")[1]
    example = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert example is not None
    code = example[1].replace("localhost:9092", pipeline_cluster.bootstrap_servers)
    code = code.replace("http://localhost:8081", registry._url).replace('"orders', f'"{orders}')
    exec(code.replace('"invoices', f'"{invoices}'), {"spark": spark})

    deserializer = SchemaDeserializer(registry)
    with Consumer(
        invoices,
        bootstrap_servers=pipeline_cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        value_deserializer=deserializer,
        consumer_timeout_ms=30_000,
    ) as consumer:
        found = [next(consumer).value for _ in range(2)]
    assert found == [{"id": 1, "total": 150.0}, {"id": 2, "total": 250.5}]


def test_columns_are_decoded_and_encoded_in_spark(spark: SparkSession, registry: SchemaRegistry) -> None:
    """Fields can be used in queries; the mode says what happens to records that cannot be decoded."""
    registry.register("orders-value", RegisteredSchema(json.dumps(ORDER)))
    frame = spark.createDataFrame([(1, 1.5), (2, 2.5)], "id long, total double")
    payloads = frame.select("id", to_registry(F.struct("id", "total"), registry, "orders-value").alias("value"))
    with_text = payloads.unionAll(spark.createDataFrame([(3, b"text")], "id long, value binary"))

    orders = with_text.select("id", from_registry("value", registry, "orders-value", mode="PERMISSIVE").alias("order"))
    assert orders.schema["order"].dataType.simpleString() == "struct<id:bigint,total:double>"
    rows = {row.id: row["order"] and row["order"].total for row in orders.collect()}
    assert rows == {1: 1.5, 2: 2.5, 3: None}
    with pytest.raises(PySparkException, match="a record cannot be decoded: no schema id"):
        with_text.select(from_registry("value", registry, "orders-value")).collect()


def test_mistakes_are_told_before_the_query_runs(registry: SchemaRegistry) -> None:
    """A subject that the registry lacks, and a mode that does not exist."""
    with pytest.raises(SerializationError, match="the registry has no subjects/none"):
        from_registry("value", registry, "none")
    with pytest.raises(SerializationError, match="the registry has no subjects/none"):
        to_registry("value", registry, "none")
    with pytest.raises(SourceOptionError, match="FAILFAST or PERMISSIVE"):
        from_registry("value", registry, "s", mode="DROPMALFORMED")  # type: ignore[arg-type]
