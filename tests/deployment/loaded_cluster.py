"""Two real brokers that have work, and what they show to Prometheus."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from prometheus_client.parser import text_string_to_metric_families
from tests.kit.broker_process import BrokerProcess
from tests.kit.waiting import until
from tests.kit.zookeeper import ZooKeeper, ZooKeeperServer

TOPIC = "orders"
FUTURE_TOPIC = "appointments"
_SEGMENT_BYTES = 1000
_STUCK = "ottla_log_stuck_segment_bytes"
GROUP = "billing"
PARTITIONS = 3
RECORDS = 300
WAIT_SECONDS_MAX = 90

# The labels of each series, by metric.
Series = Mapping[str, list[Mapping[str, str]]]


@contextmanager
def loaded_cluster(folder: Path, zookeeper_server: ZooKeeperServer) -> Iterator[list[BrokerProcess]]:
    """Brokers with a topic of two replicas, records in it, and a group that has read them and is still there.

    Another topic has a segment with timestamps of next month.
    """
    connect = ZooKeeper(zookeeper_server).connect
    options = ("log.initial.task.delay.ms=0", "log.retention.check.interval.ms=500")
    brokers = [BrokerProcess(folder / f"broker-{i}", connect, *options, broker_id=i) for i in (1, 2)]
    with ExitStack() as running:
        for broker in brokers:
            running.enter_context(broker)
        bootstrap = ",".join(broker.bootstrap for broker in brokers)
        _create_topic(bootstrap)
        _produce(bootstrap)
        running.enter_context(_reading(bootstrap))
        until(lambda: _STUCK in series_of(brokers), "retention has found a segment that it cannot delete")
        yield brokers


def series_of(brokers: list[BrokerProcess]) -> Series:
    """Scrape all brokers, as Prometheus does."""
    found: dict[str, list[Mapping[str, str]]] = {}
    for broker in brokers:
        with urllib.request.urlopen(f"{broker.http}/metrics", timeout=WAIT_SECONDS_MAX) as answer:
            text = answer.read().decode()
        for name, labels in samples(text):
            found.setdefault(name, []).append({**labels, "instance": str(broker.broker_id), "job": "ottla"})
    return found


def samples(text: str) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Read a page of metrics."""
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            yield sample.name, sample.labels


def _create_topic(bootstrap: str) -> None:
    admin: Any = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic(TOPIC, PARTITIONS, 2, config={"min.insync.replicas": "1"})
    future = NewTopic(FUTURE_TOPIC, 1, 1, config={"segment.bytes": str(_SEGMENT_BYTES)})
    for created in admin.create_topics([topic, future]).values():
        created.result(WAIT_SECONDS_MAX)


def _produce(bootstrap: str) -> None:
    producer: Any = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(RECORDS):
        producer.produce(TOPIC, b"order %d" % number, partition=number % PARTITIONS)
    for _ in range(3):
        next_month_ms = int(time.time() * 1000) + 30 * 86_400_000
        producer.produce(FUTURE_TOPIC, bytes(_SEGMENT_BYTES - 200), timestamp=next_month_ms)
        assert producer.flush(WAIT_SECONDS_MAX) == 0
    assert producer.flush(WAIT_SECONDS_MAX) == 0


@contextmanager
def _reading(bootstrap: str) -> Iterator[None]:
    consumer: Any = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe([TOPIC])
        read = 0
        while read < RECORDS:
            messages = consumer.consume(RECORDS - read, timeout=WAIT_SECONDS_MAX)
            assert messages, f"only {read} records came"
            read += sum(message.error() is None for message in messages)
        consumer.commit(asynchronous=False)
        yield
    finally:
        consumer.close()
