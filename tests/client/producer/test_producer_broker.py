"""The producer on real brokers: what it writes, another client reads; and brokers that die under it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial
from typing import Literal

import pytest
from tests.interop.clients.aio import AioKafka
from tests.kit.broker_process import BrokerProcess, MakeBroker
from tests.kit.coroutines import UVLOOP

from ottla.client.producer.partitioner import partition_of_key
from ottla.client.producer.producer import Producer
from ottla.client.producer.settings import CompressionType

PARTITIONS = 3
RESTARTS = 2
DELIVERY_TIMEOUT_MS = 60_000


@UVLOOP
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_another_client_reads_what_was_written(broker: BrokerProcess, topic: str, codec: CompressionType) -> None:
    """Keys, values, headers and timestamps, with every codec."""
    sent = [(b"k%d" % number if number % 3 else None, b"value %d" % number) for number in range(500)]
    async with Producer(bootstrap_servers=broker.bootstrap, compression_type=codec) as producer:
        deliveries = [
            await producer.send(topic, value, key, partition=0, timestamp_ms=1000 + index, headers=[("h", key)])
            for index, (key, value) in enumerate(sent)
        ]
        assert [(await delivery).offset for delivery in deliveries] == list(range(len(sent)))

    received = await asyncio.to_thread(AioKafka().consume, broker.bootstrap, topic, len(sent))

    assert [(record.key, record.value) for record in received] == sent
    assert [record.timestamp_ms for record in received] == [1000 + index for index in range(len(sent))]


@pytest.mark.parametrize("acks", [0, 1, "all"])
async def test_every_kind_of_acknowledgement_works(
    broker: BrokerProcess, topic: str, acks: int | Literal["all"]
) -> None:
    """On asyncio's own loop, too."""
    async with Producer(bootstrap_servers=broker.bootstrap, acks=acks) as producer:
        for number in range(100):
            await producer.send(topic, b"%d" % number, partition=0)

    received = await asyncio.to_thread(AioKafka().consume, broker.bootstrap, topic, 100)
    assert [record.value for record in received] == [b"%d" % number for number in range(100)]


@UVLOOP
async def test_nothing_is_lost_doubled_or_reordered_when_the_broker_dies_under_load(
    make_broker: MakeBroker, topic: str
) -> None:
    """Killed while batches are in flight, several times."""
    broker = make_broker(f"num.partitions={PARTITIONS}", "zookeeper.session.timeout.ms=3000")
    sent: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
    stop = asyncio.Event()
    async with Producer(
        bootstrap_servers=broker.bootstrap,
        max_batch_size=1000,
        delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
        retry_backoff_ms=10,
    ) as producer:

        async def load() -> list[Awaitable[object]]:
            deliveries: list[Awaitable[object]] = []
            while not stop.is_set():
                key = value = b"%d" % len(deliveries)
                sent[partition_of_key(key, PARTITIONS)].append(value)
                deliveries.append(await producer.send(topic, value, key))
                if len(deliveries) % 50 == 0:
                    await asyncio.sleep(0.005)
            return deliveries

        await producer.partitions_for(topic)
        loading = asyncio.create_task(load())
        for _ in range(RESTARTS):
            written = await producer.send_and_wait(topic, b"marker", key=b"marker", partition=PARTITIONS - 1)
            assert written.offset >= 0
            sent[PARTITIONS - 1].append(b"marker")
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.start)
        stop.set()
        await asyncio.gather(*await loading)
        for partition, values in sent.items():
            last = await producer.send_and_wait(topic, b"last", partition=partition)
            assert last.offset == len(values)
    for partition, expected in sent.items():
        consume = partial(AioKafka().consume, broker.bootstrap, topic, len(expected), partition=partition)
        received = await asyncio.to_thread(consume)
        found = [record.value for record in received if record.value != b"marker"]
        assert found == [value for value in expected if value != b"marker"]
        assert len(received) == len(expected)
