"""The consumer against Apache Kafka's own broker, where it can be had."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import confluent_kafka
import pytest
from tests.client.consumer.consuming import create_topic, group_name, member, partitions_of, produce, read
from tests.kit.broker_process import BrokerProcess
from tests.kit.kafka_process import VERSIONS, KafkaProcess, new_kafka
from tests.kit.waiting import until_async
from tests.kit.zookeeper import ZooKeeperServer

from ottla.client.consumer.consumer import Consumer
from ottla.client.net.settings import IsolationLevel
from ottla.client.types import TopicPartition


@pytest.fixture(scope="module", params=VERSIONS)
def kafka(
    request: pytest.FixtureRequest, zookeeper_server: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """A broker of Kafka, alone in its cluster."""
    process = new_kafka(request.param, tmp_path_factory.mktemp("kafka"), zookeeper_server)
    process.start_on_free_ports()
    yield process
    process.kill()


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky", "cooperative-sticky"])
async def test_groups(kafka: BrokerProcess, topic: str, strategy: str) -> None:
    """Two members share the partitions, what they commit is kept, and who stays goes on with all."""
    await create_topic(kafka.bootstrap, topic, 4)
    everything, group = partitions_of(topic, 4), group_name()
    options = {"partition_assignment_strategy": [strategy]}
    async with member(kafka.bootstrap, group, topic, **options) as first:
        async with member(kafka.bootstrap, group, topic, **options) as second:
            await until_async(lambda: len(first.assignment()) == len(second.assignment()) == 2)
            assert first.assignment() | second.assignment() == everything
            for number in range(4):
                await produce(kafka.bootstrap, topic, [b"%d" % number], number)
            halves = await asyncio.gather(read(first, 2), read(second, 2))
            assert sorted(halves[0] + halves[1]) == [b"0", b"1", b"2", b"3"]
            await first.commit()
        await until_async(lambda: first.assignment() == everything)
        await produce(kafka.bootstrap, topic, [b"after"], 3)
        assert await read(first, 1) == [b"after"]


async def test_groups_of_the_new_protocol(kafka: BrokerProcess, topic: str) -> None:
    """Two members share the partitions as the coordinator says; Kafka 3.9 does not have it switched on."""
    if isinstance(kafka, KafkaProcess):
        pytest.skip("coordinators of Kafka 3.9 on ZooKeeper have only the classic protocol")
    await create_topic(kafka.bootstrap, topic, 4)
    everything, group = partitions_of(topic, 4), group_name()
    async with member(kafka.bootstrap, group, topic, group_protocol="consumer") as first:
        async with member(kafka.bootstrap, group, topic, group_protocol="consumer") as second:
            await until_async(lambda: len(first.assignment()) == len(second.assignment()) == 2)
            assert first.assignment() | second.assignment() == everything
        await until_async(lambda: first.assignment() == everything)
        await produce(kafka.bootstrap, topic, [b"after"], 3)
        assert await read(first, 1) == [b"after"]


async def test_reading_by_hand(kafka: BrokerProcess, topic: str) -> None:
    """Sessions of fetches over many records, seeks, and offsets by time."""
    await create_topic(kafka.bootstrap, topic, 3)
    await produce(kafka.bootstrap, topic, [b"%d" % number for number in range(1000)])
    name = TopicPartition(topic, 0)
    async with Consumer(
        bootstrap_servers=kafka.bootstrap, auto_offset_reset="earliest", max_partition_fetch_bytes=1000
    ) as consumer:
        consumer.assign(partitions_of(topic, 3))
        assert await read(consumer, 1000) == [b"%d" % number for number in range(1000)]
        consumer.seek(name, 500)
        assert (await consumer.getone()).value == b"500"
        await produce(kafka.bootstrap, topic, [b"other"], 2)
        assert (await consumer.getone(TopicPartition(topic, 2))).value == b"other"
        found = (await consumer.offsets_for_times({name: 0}))[name]
        assert found is not None
        assert found.offset == 0


async def test_only_what_was_committed_is_read(kafka: BrokerProcess, topic: str) -> None:
    """With read_committed, records of an aborted transaction are left out; without, they are there."""
    await create_topic(kafka.bootstrap, topic)
    await asyncio.to_thread(write_transactions, kafka.bootstrap, topic)
    visible: dict[IsolationLevel, list[bytes]] = {
        "read_committed": [b"first", b"third", b"last"],
        "read_uncommitted": [b"first", b"second", b"third", b"last"],
    }
    for isolation_level, expected in visible.items():
        async with Consumer(
            topic, bootstrap_servers=kafka.bootstrap, isolation_level=isolation_level, auto_offset_reset="earliest"
        ) as consumer:
            assert await read(consumer, len(expected)) == expected


def write_transactions(bootstrap: str, topic: str) -> None:
    """Write a transaction that commits, one that aborts, another that commits, and a record of its own."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    for value, commits in ((b"first", True), (b"second", False), (b"third", True)):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush(30)
        if commits:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    single = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    single.produce(topic, b"last", partition=0)
    assert single.flush(30) == 0
