"""The consumer on a real broker, with partitions of its own choice."""

from __future__ import annotations

import asyncio

import pytest
from tests.client.consumer.consuming import create_topic, group_name, member, partitions_of, produce, read
from tests.kit.broker_process import BrokerProcess, MakeBroker
from tests.kit.waiting import until_async

from ottla.client.consumer.consumer import Consumer
from ottla.client.consumer.settings import OffsetReset
from ottla.client.errors import ConsumerStoppedError, IllegalStateError, OffsetOutOfRangeError
from ottla.client.net.settings import IsolationLevel
from ottla.client.types import OffsetAndMetadata, TopicPartition


@pytest.mark.parametrize("isolation_level", ["read_uncommitted", "read_committed"])
async def test_reads_what_is_assigned_in_order(
    broker: BrokerProcess, topic: str, isolation_level: IsolationLevel
) -> None:
    """Each partition comes in the order of its offsets, whole, and with all fields of its records."""
    await create_topic(broker.bootstrap, topic, 2)
    for partition in range(2):
        await produce(broker.bootstrap, topic, [b"%d" % number for number in range(500)], partition)
    async with Consumer(
        bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", isolation_level=isolation_level
    ) as consumer:
        consumer.assign(partitions_of(topic, 2))
        seen: dict[TopicPartition, list[tuple[int, bytes | None]]] = {name: [] for name in partitions_of(topic, 2)}
        while sum(map(len, seen.values())) < 1000:
            for name, records in (await consumer.getmany(timeout_ms=1000, max_records=70)).items():
                seen[name] += [(record.offset, record.value) for record in records]
                assert all(record.topic_partition == name for record in records)
        assert all(rows == [(number, b"%d" % number) for number in range(500)] for rows in seen.values())
        assert consumer.highwater(TopicPartition(topic, 0)) == 500


async def test_a_topic_without_a_group_is_read_whole(broker: BrokerProcess, topic: str) -> None:
    """All partitions of the topics given are read, and the iteration waits for more."""
    await create_topic(broker.bootstrap, topic, 2)
    await produce(broker.bootstrap, topic, [b"a"], 0)
    await produce(broker.bootstrap, topic, [b"b"], 1)
    async with Consumer(topic, bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
        seen = set()
        async for record in consumer:
            seen.add(record.value)
            if len(seen) == 2:
                await produce(broker.bootstrap, topic, [b"c"])
            if len(seen) == 3:
                break
        assert seen == {b"a", b"b", b"c"}
        with pytest.raises(IllegalStateError):
            await consumer.commit()


async def test_seek_drops_what_was_fetched(broker: BrokerProcess, topic: str) -> None:
    """After a seek, forwards or back, the next record is the one at that offset."""
    await create_topic(broker.bootstrap, topic)
    await produce(broker.bootstrap, topic, [b"%d" % number for number in range(100)])
    name = TopicPartition(topic, 0)
    async with Consumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([name])
        assert (await consumer.getone()).offset == 0
        for offset in (50, 7, 99):
            consumer.seek(name, offset)
            assert (await consumer.getone()).offset == offset
            assert await consumer.position(name) == offset + 1
        await consumer.seek_to_end(name)
        assert await consumer.position(name) == 100
        await consumer.seek_to_beginning()
        assert (await consumer.getone(name)).value == b"0"


async def test_paused_partitions_wait(broker: BrokerProcess, topic: str) -> None:
    """Nothing of a paused partition is handed out, also what was fetched before; all of it after it is resumed."""
    await create_topic(broker.bootstrap, topic, 2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    for partition in range(2):
        await produce(broker.bootstrap, topic, [b"%d" % number for number in range(10)], partition)
    async with Consumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([first, second])
        await consumer.getone(first)
        consumer.pause(first)
        assert consumer.paused() == {first}
        seen = 0
        while seen < 10:
            found = await consumer.getmany(timeout_ms=1000)
            assert set(found) <= {second}
            seen += len(found.get(second, ()))
        consumer.resume(first)
        assert [(await consumer.getone(first)).offset for _ in range(9)] == list(range(1, 10))


async def test_offsets_are_looked_up(broker: BrokerProcess, topic: str) -> None:
    """The ends of a partition, and the first record at or after a time."""
    await create_topic(broker.bootstrap, topic)
    await produce(broker.bootstrap, topic, [b"x"] * 10)
    name = TopicPartition(topic, 0)
    async with Consumer(bootstrap_servers=broker.bootstrap) as consumer:
        assert await consumer.beginning_offsets([name]) == {name: 0}
        assert await consumer.end_offsets([name]) == {name: 10}
        found = (await consumer.offsets_for_times({name: 0}))[name]
        assert found is not None
        assert found.offset == 0
        assert await consumer.offsets_for_times({name: 1 << 50}) == {name: None}
        assert topic in await consumer.topics()
        assert await consumer.partitions_for_topic(topic) == {0}


@pytest.mark.parametrize(("policy", "offset"), [("earliest", 0), ("latest", 10)])
async def test_an_offset_that_is_not_there_is_reset_by_policy(
    broker: BrokerProcess, topic: str, policy: OffsetReset, offset: int
) -> None:
    """The consumer goes on at the end of the partition that auto_offset_reset names."""
    await create_topic(broker.bootstrap, topic)
    await produce(broker.bootstrap, topic, [b"x"] * 10)
    name = TopicPartition(topic, 0)
    async with Consumer(bootstrap_servers=broker.bootstrap, auto_offset_reset=policy) as consumer:
        consumer.assign([name])
        consumer.seek(name, 1000)
        waiting = asyncio.create_task(consumer.getone())

        async def is_reset() -> bool:
            return await consumer.position(name) != 1000

        await until_async(is_reset)
        await produce(broker.bootstrap, topic, [b"new"])
        assert (await waiting).offset == offset


async def test_without_a_policy_the_reader_learns_of_it_and_others_go_on(broker: BrokerProcess, topic: str) -> None:
    """OffsetOutOfRangeError is raised, again and again, but not while other partitions have records."""

    async def read_good(consumer: Consumer, good: TopicPartition) -> list[object]:
        return [await consumer.getone(good) for _ in range(10)]

    await create_topic(broker.bootstrap, topic, 2)
    await produce(broker.bootstrap, topic, [b"x"] * 10, 1)
    bad, good = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with Consumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="none") as consumer:
        consumer.assign([bad, good])
        consumer.seek(bad, 1000)
        consumer.seek(good, 0)
        assert len(await read_good(consumer, good)) == 10
        for _ in range(2):
            with pytest.raises(OffsetOutOfRangeError):
                await consumer.getone(bad)
        consumer.seek(bad, 0)
        await produce(broker.bootstrap, topic, [b"back"], 0)
        assert (await consumer.getone()).value == b"back"


async def test_batches_and_columns_have_what_records_have(broker: BrokerProcess, topic: str) -> None:
    """The same records come as objects, as batches and as columns; also when the ways are mixed."""
    await create_topic(broker.bootstrap, topic)
    await produce(broker.bootstrap, topic, [b"%d" % number for number in range(300)])
    name = TopicPartition(topic, 0)
    async with Consumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([name])
        assert await read(consumer, 3) == [b"0", b"1", b"2"]
        offsets: list[int] = []
        values: list[bytes | None] = []
        while len(values) < 297:
            for columns in (await consumer.getcolumns(timeout_ms=1000)).values():
                offsets += columns.offsets
                values += columns.values
        assert offsets == list(range(3, 300))
        assert values == [b"%d" % number for number in range(3, 300)]
        assert await consumer.position(name) == 300
        consumer.seek(name, 290)
        (batches,) = (await consumer.getbatches(timeout_ms=5000)).values()
        assert [record.offset for batch in batches for record in batch.records()] == list(range(290, 300))


async def test_commits_outlive_the_consumer(broker: BrokerProcess, topic: str) -> None:
    """Offsets that were committed by hand, with their metadata, are where the next consumer of the group begins."""
    await create_topic(broker.bootstrap, topic)
    await produce(broker.bootstrap, topic, [b"%d" % number for number in range(10)])
    name, group = TopicPartition(topic, 0), group_name()
    async with member(broker.bootstrap, group, enable_auto_commit=False) as consumer:
        consumer.assign([name])
        assert await consumer.committed(name) is None
        await read(consumer, 4)
        await consumer.commit()
        assert await consumer.committed(name) == 4
    async with member(broker.bootstrap, group, enable_auto_commit=False) as consumer:
        consumer.assign([name])
        assert await read(consumer, 2) == [b"4", b"5"]
        await consumer.commit({name: OffsetAndMetadata(5, "note")})
        known = (await consumer.committed_offsets([name]))[name]
        assert known is not None
        assert known[:2] == (5, "note")


async def test_auto_commit_commits_what_the_caller_is_done_with(broker: BrokerProcess, topic: str) -> None:
    """What was handed out counts as done on stop(), and as not done when the caller fails with it."""

    async def fail(group: str) -> None:
        async with member(broker.bootstrap, group, topic) as consumer:
            await read(consumer, 3)
            await consumer.getone()
            raise ZeroDivisionError

    await create_topic(broker.bootstrap, topic)
    await produce(broker.bootstrap, topic, [b"%d" % number for number in range(10)])
    group = group_name()
    with pytest.raises(ZeroDivisionError):
        await fail(group)
    async with member(broker.bootstrap, group, topic) as consumer:
        assert await read(consumer, 2) == [b"3", b"4"]
    async with member(broker.bootstrap, group, topic) as consumer:
        assert await read(consumer, 1) == [b"5"]


async def test_reading_goes_on_after_a_restart_of_the_broker(make_broker: MakeBroker, topic: str) -> None:
    """No record is lost or comes twice when the broker stops under the consumer and comes back."""
    broker = make_broker()
    await create_topic(broker.bootstrap, topic)
    await produce(broker.bootstrap, topic, [b"%d" % number for number in range(10)])
    async with Consumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        seen = await read(consumer, 5)
        await asyncio.to_thread(broker.restart)
        await produce(broker.bootstrap, topic, [b"%d" % number for number in range(10, 20)])
        assert seen + await read(consumer, 15) == [b"%d" % number for number in range(20)]


async def test_a_record_that_cannot_be_deserialized_is_named(broker: BrokerProcess, topic: str) -> None:
    """Records before it are handed out first; after seeking past it, reading goes on."""
    await create_topic(broker.bootstrap, topic)
    await produce(broker.bootstrap, topic, [b"1", b"2", b"x", b"4"])
    name = TopicPartition(topic, 0)
    async with Consumer(
        bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", value_deserializer=int
    ) as consumer:
        consumer.assign([name])
        assert [(await consumer.getone()).value for _ in range(2)] == [1, 2]
        with pytest.raises(ValueError, match="x") as raised:
            await consumer.getone()
        assert f"offset 2 of {name}" in raised.value.__notes__[0]
        consumer.seek(name, 3)
        assert (await consumer.getone()).value == 4


async def test_a_stopped_consumer_says_so(broker: BrokerProcess, topic: str) -> None:
    """Calls before start() and after stop() are ConsumerStoppedErrors, also one that waits; an iteration ends."""

    async def iterate(consumer: Consumer) -> list[bytes | None]:
        return [record.value async for record in consumer]

    consumer = Consumer(topic, bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")
    with pytest.raises(ConsumerStoppedError):
        await consumer.getone()
    await create_topic(broker.bootstrap, topic)
    await consumer.start()
    waiting, iterating = asyncio.create_task(consumer.getone()), asyncio.create_task(iterate(consumer))
    await until_async(lambda: consumer.assignment() == partitions_of(topic, 1))
    await consumer.stop()
    with pytest.raises(ConsumerStoppedError):
        await waiting
    assert await iterating == []
    with pytest.raises(ConsumerStoppedError):
        consumer.assignment()
