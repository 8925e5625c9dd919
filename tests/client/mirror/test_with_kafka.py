"""A mirror from and to Apache Kafka: the way to migrate, and back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from tests.client.mirror.contents import ends, fill, seen, stored, write
from tests.client.mirror.test_mirror import becomes, mirror
from tests.kit.broker_process import BrokerProcess
from tests.kit.kafka_process import VERSIONS, new_kafka
from tests.kit.zookeeper import ZooKeeperServer

from ottla import Admin, Producer
from ottla.client.admin.results import NewTopic
from ottla.client.mirror.errors import MirrorError
from ottla.client.types import OffsetAndMetadata, TopicPartition

pytestmark = pytest.mark.long

COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.0001",
    "delete.retention.ms": "0",
    "min.compaction.lag.ms": "0",
}


@pytest.fixture(scope="module", params=VERSIONS)
def kafka(
    request: pytest.FixtureRequest, zookeeper_server: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """A broker of Kafka, alone in its cluster; it compacts all the time."""
    options = ("log.cleaner.backoff.ms=200", "log.cleaner.dedupe.buffer.size=4194304", "log.cleaner.threads=1")
    with new_kafka(request.param, tmp_path_factory.mktemp("kafka"), zookeeper_server, *options) as made:
        yield made


async def prepare(source: BrokerProcess, topic: str) -> None:
    """Have a topic with everything, and a group that has read a part of it."""
    async with Admin(bootstrap_servers=source.bootstrap) as there:
        await there.create_topics(
            [NewTopic(topic, 2, 1, configs={"retention.ms": "-1", "max.message.bytes": "2000000"})]
        )
        await fill(source.bootstrap, topic)
        await there.alter_group_offsets(f"{topic}-group", {TopicPartition(topic, 1): OffsetAndMetadata(7, "mine")})


async def check_group(destination: BrokerProcess, topic: str) -> None:
    """Expect the offsets of the group."""
    async with Admin(bootstrap_servers=destination.bootstrap) as here:
        (offset,) = await here.list_group_offsets(f"{topic}-group")
    assert (offset.partition, offset.offset, offset.metadata) == (1, 7, "mine")


async def test_from_kafka_to_ours_every_byte_is_the_same(
    kafka: BrokerProcess, other_broker: BrokerProcess, topic: str
) -> None:
    """With transactions that were committed, and those that were aborted."""
    await prepare(kafka, topic)

    async with mirror(kafka, other_broker, topic) as made:
        found = await made.once()

    assert found.sentence == "source and destination agree: 1 topic, 2 partitions, 1 group"
    partitions = [TopicPartition(topic, number) for number in range(2)]
    for partition in partitions:
        assert await stored(other_broker.bootstrap, partition) == await stored(kafka.bootstrap, partition)
        assert await seen(other_broker.bootstrap, partition) == await seen(kafka.bootstrap, partition)
    assert await ends(other_broker.bootstrap, partitions) == await ends(kafka.bootstrap, partitions)
    await check_group(other_broker, topic)
    # Producers there begin as new ones, whatever producers the copied batches are from.
    await write(other_broker.bootstrap, topic, 10)
    assert len(await seen(other_broker.bootstrap, partitions[0])) == 10 + len(
        await seen(kafka.bootstrap, partitions[0])
    )


async def test_from_ours_to_kafka_every_record_keeps_its_offset(
    kafka: BrokerProcess, broker: BrokerProcess, topic: str
) -> None:
    """And its time and headers; what was aborted is gone, and its offsets are not given to others."""
    await prepare(broker, topic)
    partitions = [TopicPartition(topic, number) for number in range(2)]

    async with mirror(broker, kafka, topic) as made:
        found = await made.once()
        with pytest.raises(MirrorError, match="Another mirror"):
            async with mirror(broker, kafka, topic):
                pass

    assert found.sentence == "source and destination agree: 1 topic, 2 partitions, 1 group"
    for partition in partitions:
        assert await seen(kafka.bootstrap, partition) == await seen(broker.bootstrap, partition)
    assert await ends(kafka.bootstrap, partitions) == await ends(broker.bootstrap, partitions)
    await check_group(kafka, topic)

    # A new mirror goes on at the end.
    await fill(broker.bootstrap, topic)
    async with mirror(broker, kafka, topic) as made:
        assert (await made.once()).differences == []
    for partition in partitions:
        assert await seen(kafka.bootstrap, partition) == await seen(broker.bootstrap, partition)


async def test_the_way_back_copies_only_what_is_new(
    kafka: BrokerProcess, other_broker: BrokerProcess, topic: str
) -> None:
    """The old cluster has the beginning of the log, and gets the rest."""
    await prepare(kafka, topic)
    partitions = [TopicPartition(topic, number) for number in range(2)]
    async with mirror(kafka, other_broker, topic) as made:
        assert (await made.once()).differences == []
    await fill(other_broker.bootstrap, topic)

    async with mirror(other_broker, kafka, topic) as made:
        assert (await made.once()).differences == []
        assert 0 < made.status().records_copied < 100

    for partition in partitions:
        assert await seen(kafka.bootstrap, partition) == await seen(other_broker.bootstrap, partition)
    assert await ends(kafka.bootstrap, partitions) == await ends(other_broker.bootstrap, partitions)


async def test_a_transaction_that_is_open_is_copied_when_it_ends(
    kafka: BrokerProcess, broker: BrokerProcess, topic: str
) -> None:
    """Until then, clusters do not agree, and the mirror says why."""
    partition = TopicPartition(topic, 0)
    await write(broker.bootstrap, topic, 5)
    async with Producer(bootstrap_servers=broker.bootstrap, transactional_id=topic) as producer:
        await producer.begin_transaction()
        await (await producer.send(topic, b"open", partition=0))
        async with mirror(broker, kafka, topic) as made:
            found = await made.once()
            assert found.differences == [f"{partition} has an open transaction in the source from offset 5 on"]
            assert len(await seen(kafka.bootstrap, partition)) == 5
            await producer.commit_transaction()
            assert (await made.once()).differences == []
    assert await seen(kafka.bootstrap, partition) == await seen(broker.bootstrap, partition)


async def test_what_compaction_has_removed_stays_removed(
    kafka: BrokerProcess, broker: BrokerProcess, other_broker: BrokerProcess, topic: str
) -> None:
    """From Kafka to ours the holes are the same; back to Kafka, markers that nobody sees fill them."""
    partition = TopicPartition(topic, 0)
    async with Admin(bootstrap_servers=kafka.bootstrap) as there:
        await there.create_topics([NewTopic(topic, 1, 1, configs=COMPACTED)])

    async def offsets() -> list[int]:
        async with Producer(bootstrap_servers=kafka.bootstrap, linger_ms=20) as producer:
            await asyncio.gather(*[await producer.send(topic, b"v", key=b"k-%d" % (each % 5)) for each in range(40)])
        return [each.offset for each in await seen(kafka.bootstrap, partition)]

    async def has_holes() -> bool:
        found = await offsets()
        return len(found) < found[-1] + 1

    await becomes(True, has_holes)

    async with mirror(kafka, other_broker, topic) as made:
        assert (await made.once()).differences == []
    await check_compacted(other_broker, kafka, partition)

    async with Admin(bootstrap_servers=kafka.bootstrap) as there:
        await there.delete_topics([topic])

        async def is_gone() -> bool:
            return topic not in {each.name for each in await there.list_topics()}

        await becomes(True, is_gone)
    async with mirror(other_broker, kafka, topic) as made:
        assert (await made.once()).differences == []
    await check_compacted(kafka, other_broker, partition)


async def check_compacted(destination: BrokerProcess, source: BrokerProcess, partition: TopicPartition) -> None:
    """Expect the same records, as far as both still have them: compaction goes on. The last of each key stay."""
    here, there = await seen(destination.bootstrap, partition), await seen(source.bootstrap, partition)
    both = {each.offset for each in here} & {each.offset for each in there}
    assert [each for each in here if each.offset in both] == [each for each in there if each.offset in both]
    assert {each.key: each for each in here} == {each.key: each for each in there}
    found = await ends(destination.bootstrap, [partition])
    assert found == await ends(source.bootstrap, [partition])
    assert len(here) < found[partition][1]
