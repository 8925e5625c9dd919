"""A consumer in a group: subscribe, consume, commit, come back, and go on where it stopped; over a restart too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.kit.broker_process import BrokerProcess, MakeBroker, topic_name
from tests.kit.waiting import until

confluent_kafka = pytest.importorskip("confluent_kafka")

_TIMEOUT_S = 30


def produce(broker: BrokerProcess, topic: str, values: list[bytes]) -> None:
    """Write values to a topic and wait until they are there."""
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(_TIMEOUT_S) == 0


@contextmanager
def consumer(broker: BrokerProcess, group: str, topic: str) -> Iterator[Any]:
    """A consumer that reads a topic in a group, from the beginning where the group has no position."""
    made = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    made.subscribe([topic])
    try:
        yield made
    finally:
        made.close()


def consume(reader: Any, count: int) -> list[bytes]:
    """Read so many values."""
    values: list[bytes] = []

    def poll() -> None:
        record = reader.poll(0.1)
        if record is not None:
            assert record.error() is None, record.error()
            values.append(record.value())

    until(lambda: len(values) >= count, lambda: f"{count} records, but {values}", meanwhile=poll)
    return values


def test_a_group_continues_where_it_stopped(make_broker: MakeBroker) -> None:
    """Another consumer of the group gets what the first had not committed, also after the broker was restarted."""
    broker, topic = make_broker(), topic_name()
    produce(broker, topic, [b"a", b"b", b"c"])
    with consumer(broker, "readers", topic) as reader:
        assert consume(reader, 2) == [b"a", b"b"]
        (committed,) = reader.commit(
            offsets=[confluent_kafka.TopicPartition(topic, 0, 2, metadata="half way")], asynchronous=False
        )
        assert committed.error is None

    broker.restart()

    with consumer(broker, "readers", topic) as reader:
        assert consume(reader, 1) == [b"c"]
        (position,) = reader.committed([confluent_kafka.TopicPartition(topic, 0)], timeout=_TIMEOUT_S)
        assert (position.offset, position.metadata) == (2, "half way")
