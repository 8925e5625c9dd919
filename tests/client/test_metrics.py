"""`metrics()` of the clients, and the callback that gets them at intervals."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

import pytest
from tests.client.consumer.consuming import create_topic, group_name, member, read
from tests.client.producer.scripted_producing import Brokers, producing
from tests.client.scripted_broker import Reply
from tests.kit.broker_process import BrokerProcess

from ottla import sync
from ottla.client.admin.admin import Admin
from ottla.client.errors import KafkaConfigurationError, KafkaError, ProducerClosed
from ottla.client.producer.producer import Producer
from ottla.client.types import TopicPartition
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records import RecordBatch

Numbers = Mapping[str, Mapping[str, float]]


async def test_a_producer_counts_what_it_sends(broker: BrokerProcess, topic: str) -> None:
    """Records, batches, bytes and requests, for the client and for each topic."""
    async with Producer(bootstrap_servers=broker.bootstrap, linger_ms=5, compression_type="zstd") as producer:
        for _ in range(100):
            await producer.send(topic, bytes(100), partition=0)
        await producer.flush()
        metrics = producer.metrics()

    overall, of_topic = metrics["producer-metrics"], metrics[f"producer-topic-metrics.{topic}"]
    assert overall["record-send-total"] == of_topic["record-send-total"] == 100
    assert overall["record-error-total"] == overall["record-retry-total"] == 0
    assert overall["record-send-rate"] > 0
    assert 0 < overall["compression-rate-avg"] < 1
    assert 0 < overall["batch-size-avg"] <= overall["batch-size-max"] < 100 * 100
    assert overall["records-per-request-avg"] > 1
    assert overall["buffer-available-bytes"] == overall["buffer-total-bytes"] == 32 * 1024 * 1024
    assert overall["request-total"] == overall["response-total"] >= 3
    assert overall["request-latency-max"] >= overall["request-latency-avg"] > 0
    assert overall["outgoing-byte-total"] > overall["batch-size-max"]
    assert overall["connection-count"] >= 1
    assert overall["metadata-age"] >= 0
    with pytest.raises(ProducerClosed):
        producer.metrics()


async def test_retries_errors_and_splits_are_counted() -> None:
    """In records, as in Kafka, and splits in batches."""
    brokers = Brokers()
    seen = 0

    def judge(partition: TopicPartition, batch: RecordBatch) -> int | Reply | None:
        nonlocal seen
        seen += 1
        if seen == 1:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        if any(record.value == b"bad" for record in batch.records()):
            return ErrorCode.MESSAGE_TOO_LARGE
        return None

    brokers.judge = judge
    async with producing(brokers, linger_ms=5) as producer:
        sent = [await producer.send("t", value, partition=0) for value in (b"good", b"bad")]
        results = await asyncio.gather(*sent, return_exceptions=True)
        metrics = producer.metrics()["producer-topic-metrics.t"]
        splits = producer.metrics()["producer-metrics"]["batch-split-total"]

    assert isinstance(results[1], KafkaError)
    assert (metrics["record-retry-total"], metrics["record-error-total"], splits) == (2, 1, 1)


async def test_a_consumer_counts_what_it_reads(broker: BrokerProcess, topic: str) -> None:
    """Records, fetches, commits and rebalances, and how far behind it is."""
    await create_topic(broker.bootstrap, topic)
    async with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for number in range(50):
            await producer.send(topic, b"%d" % number)
    async with member(broker.bootstrap, group_name(), topic, enable_auto_commit=False) as consumer:
        await read(consumer, 20)
        await consumer.commit()
        metrics = consumer.metrics()

    fetching, group = metrics["consumer-fetch-manager-metrics"], metrics["consumer-coordinator-metrics"]
    assert fetching["records-consumed-total"] == 50
    assert fetching["fetch-total"] >= 1
    assert fetching["bytes-consumed-total"] > 50
    assert fetching["records-lag-max"] == 30
    assert metrics[f"consumer-fetch-manager-metrics.{topic}-0"] == {"records-lag": 30}
    assert (group["assigned-partitions"], group["commit-total"], group["rebalance-total"]) == (1, 1, 1)
    assert group["commit-latency-max"] > 0
    assert metrics["consumer-metrics"]["connection-count"] >= 2
    assert metrics["consumer-metrics"]["last-poll-seconds-ago"] >= 0


async def test_an_admin_client_counts_its_requests(broker: BrokerProcess) -> None:
    """And the connections that it has."""
    async with Admin(bootstrap_servers=broker.bootstrap) as admin:
        await admin.list_topics()
        metrics = admin.metrics()["admin-client-metrics"]

    assert metrics["request-total"] >= 2
    assert metrics["connection-count"] == 1


def test_synchronous_clients_have_metrics_too(broker: BrokerProcess, topic: str) -> None:
    """The same ones."""
    with sync.Producer(bootstrap_servers=broker.bootstrap) as producer:
        producer.send_and_wait(topic, b"value")
        assert producer.metrics()["producer-metrics"]["record-send-total"] == 1


@pytest.mark.parametrize("is_coroutine", [False, True], ids=["function", "coroutine"])
async def test_a_callback_gets_the_metrics_at_intervals(is_coroutine: bool, caplog: pytest.LogCaptureFixture) -> None:
    """An error in it is logged, and the next call comes as if nothing had happened."""
    seen: list[Numbers] = []
    enough = asyncio.Event()

    def called(metrics: Numbers) -> None:
        seen.append(metrics)
        if len(seen) == 1:
            raise ValueError("the first one fails")
        enough.set()

    async def called_async(metrics: Numbers) -> None:
        await asyncio.sleep(0)
        called(metrics)

    caplog.set_level(logging.INFO, "ottla")
    callback = called_async if is_coroutine else called
    async with producing(Brokers(), statistics_callback=callback, statistics_interval_ms=1) as producer:
        await producer.send_and_wait("t", b"value")
        await enough.wait()

    assert len(seen) >= 2
    assert "producer-metrics" in seen[0]
    assert [record.getMessage() for record in caplog.records] == ["statistics_callback failed"]


async def test_a_callback_may_close_its_client() -> None:
    """It does not wait for itself."""
    closed = asyncio.Event()

    async def close(_: Numbers) -> None:
        await producer.stop()
        closed.set()

    async with producing(Brokers(), statistics_callback=close, statistics_interval_ms=1) as producer:
        await closed.wait()


def test_a_callback_needs_an_interval() -> None:
    """Zero would mean to call without a pause."""
    with pytest.raises(KafkaConfigurationError, match="statistics_interval_ms"):
        Producer(statistics_callback=print, statistics_interval_ms=0)
