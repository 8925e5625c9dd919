"""Columns as tables of Arrow, pandas and polars."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from tests.client.consumer.consuming import create_topic
from tests.kit.broker_process import BrokerProcess

from ottla.client.consumer.consumer import Consumer
from ottla.client.producer.producer import Producer
from ottla.client.records.columns import Columns
from ottla.client.records.fetched_batches import FetchedBatch, open_together
from ottla.client.types import TopicPartition
from ottla.protocol.record_batch_builder import RecordBatchBuilder
from ottla.protocol.records import RecordBatch

PARTITION = TopicPartition("orders", 3)
NAMES = ["topic", "partition", "offset", "timestamp", "key", "value", "headers"]


def columns_of(count: int) -> Columns:
    """Return columns as a consumer hands them out; those of many records are read by numpy."""
    builder = RecordBatchBuilder()
    for number in range(count):
        builder.append(number, b"k" if number else None, b"%d" % number, [("h", b"1"), ("h", None)][: number % 3])
    return open_together([FetchedBatch(PARTITION, RecordBatch(builder.build()), 0)])


@pytest.mark.parametrize("count", [5, 1000])
def test_arrow_has_partition_and_headers(count: int) -> None:
    """Also in a part of the rows."""
    batch = columns_of(count).sliced(1).to_arrow()
    batch.validate(full=True)
    rows = batch.slice(0, 2).to_pylist()

    assert batch.schema.names == NAMES
    assert [(row["topic"], row["partition"], row["offset"]) for row in rows] == [("orders", 3, 1), ("orders", 3, 2)]
    assert [row["headers"] for row in rows] == [
        [{"key": "h", "value": b"1"}],
        [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
    ]
    assert rows[0]["timestamp"].timestamp() == 0.001


def test_columns_of_no_known_partition_have_no_column_for_it() -> None:
    """Such as those that were put together by hand."""
    assert Columns([0], [0], [None], [b"v"], [()]).to_arrow().schema.names == NAMES[2:]


@pytest.mark.parametrize("count", [5, 1000])
def test_pandas_gets_the_same_columns(count: int) -> None:
    """With a null key as None."""
    frame = columns_of(count).to_pandas()

    assert list(frame.columns) == NAMES
    assert len(frame) == count
    assert (frame["value"][4], frame["key"][0], frame["partition"][4]) == (b"4", None, 3)
    assert frame["timestamp"][4].value == 4_000_000


@pytest.mark.parametrize("count", [5, 1000])
def test_polars_gets_the_same_columns(count: int) -> None:
    """With a null key as null."""
    frame: Any = columns_of(count).to_polars()

    assert frame.columns == NAMES
    assert frame.height == count
    assert frame.row(4, named=True)["value"] == b"4"
    assert frame["key"].null_count() == 1
    assert frame.row(4, named=True)["headers"] == [{"key": "h", "value": b"1"}]


async def test_columns_of_several_partitions_make_one_table(broker: BrokerProcess, topic: str) -> None:
    """Each row says where it comes from."""
    await create_topic(broker.bootstrap, topic, 2)
    async with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for number in range(20):
            await producer.send(topic, b"%d" % number, partition=number % 2)
    batches: list[Any] = []
    async with Consumer(topic, bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
        while sum(batch.num_rows for batch in batches) < 20:
            batches += [some.to_arrow() for some in (await consumer.getcolumns(timeout_ms=1000)).values()]

    table = pa.Table.from_batches(batches).sort_by([("partition", "ascending"), ("offset", "ascending")])
    assert table["partition"].to_pylist() == [0] * 10 + [1] * 10
    assert table["offset"].to_pylist() == [*range(10), *range(10)]
    assert set(table["topic"].to_pylist()) == {topic}
