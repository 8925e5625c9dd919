"""Transactions on real brokers, Apache Kafka's and ours; what they leave is judged by other clients, too."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from tests.client.consumer.consuming import create_topic, group_name, member, partitions_of, produce, read
from tests.interop.clients import aio
from tests.kit.broker_process import BrokerProcess
from tests.kit.kafka_process import VERSIONS, new_kafka
from tests.kit.waiting import DEADLINE_S, until_async
from tests.kit.zookeeper import ZooKeeper, ZooKeeperServer

from ottla.client.admin.admin import Admin
from ottla.client.admin.results import NewTopic
from ottla.client.consumer.consumer import Consumer
from ottla.client.errors import KafkaError, MessageSizeTooLargeError, ProducerFencedError
from ottla.client.net.settings import IsolationLevel
from ottla.client.producer.producer import Producer
from ottla.client.types import TopicPartition
from ottla.sync import Producer as SyncProducer

OPTIONS = (
    # Few, so that it is made quickly.
    "transaction.state.log.num.partitions=3",
    # Often, so that a transaction that takes too long is noticed soon.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=100",
)
PARTITIONS = 3
PAGE = Path(__file__).parents[3] / "docs" / "TRANSACTIONS.md"


class CrashError(Exception):
    """What a program does in the middle of a transaction."""


@pytest.fixture(
    scope="module", params=["ottla", *(pytest.param(version, marks=pytest.mark.long) for version in VERSIONS)]
)
def process(
    request: pytest.FixtureRequest, zookeeper_server: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """A broker of Kafka, or of ours, alone in its cluster."""
    folder = tmp_path_factory.mktemp("broker")
    if request.param == "ottla":
        made = BrokerProcess(folder, ZooKeeper(zookeeper_server).connect, *OPTIONS)
    else:
        made = new_kafka(request.param, folder, zookeeper_server, *OPTIONS)
    with made:
        yield made


@pytest.fixture
def bootstrap(process: BrokerProcess) -> str:
    """Its address."""
    return process.bootstrap


@pytest.fixture
async def topic(bootstrap: str, topic: str) -> str:
    """A topic with several partitions."""
    await create_topic(bootstrap, topic, PARTITIONS)
    return topic


def transactional(bootstrap: str, transactional_id: str, **options: Any) -> Producer:
    """Return a producer that retries soon."""
    return Producer(bootstrap_servers=bootstrap, transactional_id=transactional_id, retry_backoff_ms=10, **options)


@asynccontextmanager
async def reading(
    bootstrap: str, topic: str, isolation_level: IsolationLevel = "read_committed"
) -> AsyncIterator[Consumer]:
    """Run a consumer of all partitions of a topic, from their start."""
    async with Consumer(
        bootstrap_servers=bootstrap, isolation_level=isolation_level, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign(partitions_of(topic, PARTITIONS))
        yield consumer


async def values_in(
    bootstrap: str, topic: str, isolation_level: IsolationLevel = "read_committed"
) -> Counter[bytes | None]:
    """Return all values in a topic that a reader of this kind sees now."""
    found: Counter[bytes | None] = Counter()
    async with reading(bootstrap, topic, isolation_level) as consumer:
        ends = await consumer.end_offsets(partitions_of(topic, PARTITIONS))
        while any([await consumer.position(partition) < end for partition, end in ends.items()]):
            for records in (await consumer.getmany(timeout_ms=100)).values():
                found.update(record.value for record in records)
    return found


async def aiokafka_values(bootstrap: str, topic: str) -> Counter[bytes | None]:
    """Return the committed values in a topic as aiokafka sees them."""
    found: Counter[bytes | None] = Counter()
    async with aio.consumer(bootstrap, isolation_level="read_committed") as consumer:
        partitions = [aio.TopicPartition(topic, number) for number in range(PARTITIONS)]
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        ends = await consumer.end_offsets(partitions)
        while any([await consumer.position(partition) < end for partition, end in ends.items()]):
            for records in (await consumer.getmany(timeout_ms=100)).values():
                found.update(record.value for record in records)
    return found


def confluent_values(bootstrap: str, topic: str) -> Counter[bytes | None]:
    """Return the committed values in a topic as librdkafka sees them."""
    found: Counter[bytes | None] = Counter()
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group_name(),
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        at_end: set[int] = set()
        while len(at_end) < PARTITIONS:
            message = consumer.poll(DEADLINE_S)
            assert message is not None
            error = message.error()
            if error is None:
                found[message.value()] += 1
            else:
                assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF
                at_end.add(message.partition() or 0)
    finally:
        consumer.close()
    return found


async def assert_committed(bootstrap: str, topic: str, expected: Counter[bytes | None]) -> None:
    """Check what readers of committed records see: ours, aiokafka and librdkafka."""
    # Markers are written after the answer to a commit.
    await until_async(lambda: _sees(bootstrap, topic, expected), f"{expected} is visible")
    assert await aiokafka_values(bootstrap, topic) == expected
    assert await asyncio.to_thread(confluent_values, bootstrap, topic) == expected


async def _sees(bootstrap: str, topic: str, expected: Counter[bytes | None]) -> bool:
    return await values_in(bootstrap, topic) == expected


async def test_what_is_committed_is_seen_and_what_is_aborted_is_not(bootstrap: str, topic: str) -> None:
    """Over many transactions and partitions, of batches of all sizes; other readers see everything."""
    expected: Counter[bytes | None] = Counter()
    sent: Counter[bytes | None] = Counter()
    async with transactional(bootstrap, topic, max_batch_size=500) as producer:
        for number in range(12):
            await producer.begin_transaction()
            count = 1 if number < 6 else 50
            values = [b"%d-%d" % (number, each) for each in range(count)]
            deliveries = [
                await producer.send(topic, value, partition=each % PARTITIONS) for each, value in enumerate(values)
            ]
            if number % 3 == 1:
                await producer.flush()
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()
                expected.update(values)
            assert all([(await delivery).offset >= 0 for delivery in deliveries])
            sent.update(values)
    await assert_committed(bootstrap, topic, expected)
    assert await values_in(bootstrap, topic, "read_uncommitted") == sent


async def test_every_way_of_reading_leaves_out_what_was_aborted(bootstrap: str, topic: str) -> None:
    """One by one, many at once, as columns, by iteration, and without asyncio."""
    partition = TopicPartition(topic, 0)
    async with transactional(bootstrap, topic) as producer:
        for number in range(6):
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"%d" % number, partition=0)
            await (producer.abort_transaction() if number % 2 else producer.commit_transaction())
    await produce(bootstrap, topic, [b"last"])
    expected = [b"0", b"2", b"4", b"last"]
    await assert_committed(bootstrap, topic, Counter(expected))
    options: dict[str, Any] = {"bootstrap_servers": bootstrap, "isolation_level": "read_committed"}
    async with Consumer(auto_offset_reset="earliest", **options) as consumer:
        consumer.assign([partition])
        assert [(await consumer.getone()).value for _ in expected] == expected
        consumer.seek(partition, 0)
        assert await read(consumer, len(expected)) == expected
        consumer.seek(partition, 0)
        values: list[bytes | None] = []
        while len(values) < len(expected):
            for columns in (await consumer.getcolumns(timeout_ms=1000)).values():
                values += columns.values
        assert values == expected
        consumer.seek(partition, 1)
        values = []
        async for record in consumer:
            values.append(record.value)
            if record.value == b"last":
                break
        assert values == expected[1:]
        assert await consumer.position(partition) == (await consumer.end_offsets([partition]))[partition]


async def test_an_open_transaction_holds_back_readers_of_committed_records(bootstrap: str, topic: str) -> None:
    """For them the partition ends where it began; a record behind it waits, too."""
    partition = TopicPartition(topic, 0)
    async with transactional(bootstrap, topic) as producer, reading(bootstrap, topic) as reader:
        await produce(bootstrap, topic, [b"before"])
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"open", partition=0)
        await produce(bootstrap, topic, [b"behind"])
        assert await reader.end_offsets([partition]) == {partition: 1}
        async with reading(bootstrap, topic, "read_uncommitted") as other:
            assert await other.end_offsets([partition]) == {partition: 3}
            await other.seek_to_end(partition)
            assert await other.position(partition) == 3
        assert await read(reader, 1) == [b"before"]
        await reader.seek_to_end(partition)
        assert await reader.position(partition) == 1
        await until_async(lambda: reader.highwater(partition) == 3, "a fetch tells of the high watermark")
        assert reader.last_stable_offset(partition) == 1
        assert await reader.getmany(timeout_ms=100) == {}
        await producer.commit_transaction()
        assert await read(reader, 2) == [b"open", b"behind"]


async def test_a_second_producer_of_the_same_id_takes_over(bootstrap: str, topic: str) -> None:
    """What the first left open is aborted, and it is told so, in whatever it does next."""
    async with transactional(bootstrap, topic) as first:
        await first.begin_transaction()
        await first.send_and_wait(topic, b"first", partition=0)
        async with transactional(bootstrap, topic) as second:
            with pytest.raises(ProducerFencedError, match="close it and create a new one") as caught:
                await first.commit_transaction()
            assert caught.value.fatal
            with pytest.raises(ProducerFencedError):
                await first.begin_transaction()
            async with second.transaction():
                await second.send(topic, b"second", partition=0)
    await assert_committed(bootstrap, topic, Counter([b"second"]))


async def test_a_fenced_producer_learns_it_from_leaders_too(bootstrap: str, topic: str) -> None:
    """Its records are refused, and the abort tells that it cannot go on."""
    async with transactional(bootstrap, topic) as first:
        await first.begin_transaction()
        await first.send_and_wait(topic, b"first", partition=0)
        async with transactional(bootstrap, topic) as second:
            with pytest.raises(KafkaError) as caught:
                await first.send_and_wait(topic, b"late", partition=0)
            assert caught.value.abortable
            with pytest.raises(ProducerFencedError):
                await first.abort_transaction()
            async with second.transaction():
                await second.send(topic, b"second", partition=1)
    await assert_committed(bootstrap, topic, Counter([b"second"]))


async def test_a_transaction_that_takes_too_long_is_aborted_by_the_broker(bootstrap: str, topic: str) -> None:
    """Its producer is fenced; a new one goes on."""
    async with transactional(bootstrap, topic, transaction_timeout_ms=300) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"slow", partition=0)
        await until_async(lambda: _has_ended(bootstrap, topic), "the broker aborts it")
        with pytest.raises(ProducerFencedError):
            await producer.commit_transaction()
    async with transactional(bootstrap, topic) as producer, producer.transaction():
        await producer.send(topic, b"next", partition=0)
    await assert_committed(bootstrap, topic, Counter([b"next"]))


async def _has_ended(bootstrap: str, topic: str) -> bool:
    partition = TopicPartition(topic, 0)
    async with reading(bootstrap, topic) as reader, reading(bootstrap, topic, "read_uncommitted") as other:
        return await reader.end_offsets([partition]) == await other.end_offsets([partition])


async def test_the_producer_goes_on_after_a_record_that_failed(bootstrap: str, topic: str) -> None:
    """Other batches behind it were in flight, so it needs a new epoch, which it gets by itself."""
    topic = f"{topic}-small"
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, PARTITIONS, configs={"max.message.bytes": "5000"})])
    async with transactional(bootstrap, topic, max_batch_size=1000) as producer:
        async with producer.transaction():
            await producer.send(topic, b"before", partition=0)

        async def fail() -> None:
            async with producer.transaction():
                await producer.send(topic, bytes(10_000), partition=0)
                for _ in range(20):
                    await producer.send(topic, bytes(900), partition=0)

        for _ in range(3):
            with pytest.raises(MessageSizeTooLargeError, match="Abort the transaction"):
                await fail()
            async with producer.transaction():
                await producer.send(topic, b"after", partition=0)
    await assert_committed(bootstrap, topic, Counter([b"before", *[b"after"] * 3]))


async def test_reading_and_writing_as_one_step(bootstrap: str, topic: str) -> None:
    """Every record of the input is in the output once, although transactions fail, before and after their offsets."""
    source, group = f"{topic}-in", group_name()
    await create_topic(bootstrap, source, PARTITIONS)
    values = [b"%d" % number for number in range(60)]
    for number in range(PARTITIONS):
        await produce(bootstrap, source, values[number::PARTITIONS], number)
    transactions = 0

    async def step(consumer: Consumer, producer: Producer) -> int:
        nonlocal transactions
        found = await consumer.getmany(timeout_ms=1000, max_records=7)
        transactions += 1
        async with producer.transaction():
            for records in found.values():
                for record in records:
                    await producer.send(topic, record.value, partition=record.partition)
            if transactions % 3 == 1:
                raise CrashError
            offsets = {partition: records[-1].offset + 1 for partition, records in found.items()}
            await producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
            if transactions % 3 == 2:
                raise CrashError
        return sum(map(len, found.values()))

    done = 0
    options: dict[str, Any] = {"isolation_level": "read_committed", "enable_auto_commit": False}
    async with transactional(bootstrap, topic) as producer, member(bootstrap, group, source, **options) as consumer:
        while done < len(values):
            try:
                done += await step(consumer, producer)
            except CrashError:
                await consumer.seek_to_committed()
        committed = await consumer.committed_offsets(partitions_of(source, PARTITIONS))
    assert [known and known.offset for known in committed.values()] == [20] * PARTITIONS
    await assert_committed(bootstrap, topic, Counter(values))


async def test_offsets_of_a_member_that_the_group_has_lost_are_refused(bootstrap: str, topic: str) -> None:
    """The group has rebalanced since the records were read, so they may have another reader now."""
    group = group_name()
    options: dict[str, Any] = {"enable_auto_commit": False, "partition_assignment_strategy": ["range"]}
    await produce(bootstrap, topic, [b"1", b"2"])
    async with transactional(bootstrap, f"{topic}-id") as producer, member(bootstrap, group, topic, **options) as first:
        assert await read(first, 1) == [b"1"]
        read_as = first.group_metadata()
        async with member(bootstrap, group, topic, **options) as second:
            await until_async(lambda: first.assignment() and second.assignment(), "the partitions are shared")
            assert first.group_metadata() == read_as
            await producer.begin_transaction()
            with pytest.raises(KafkaError, match=r"did not take the offset.*Abort the transaction") as caught:
                await producer.send_offsets_to_transaction({TopicPartition(topic, 0): 1}, first.group_metadata())
            assert caught.value.abortable
            await producer.abort_transaction()
        assert await first.committed(TopicPartition(topic, 0)) is None


async def test_a_group_waits_for_offsets_of_an_open_transaction(bootstrap: str, topic: str) -> None:
    """A consumer of committed records begins when they are settled; others begin with what was before."""
    group, partition = group_name(), TopicPartition(topic, 0)
    await produce(bootstrap, topic, [b"1", b"2"])
    options: dict[str, Any] = {"bootstrap_servers": bootstrap, "group_id": group, "auto_offset_reset": "earliest"}
    async with (
        transactional(bootstrap, f"{topic}-id") as producer,
        Consumer(isolation_level="read_committed", **options) as waiting,
        Consumer(**options) as other,
    ):
        await producer.begin_transaction()
        await producer.send_offsets_to_transaction({partition: 1}, group)
        waiting.assign([partition])
        assert await other.committed(partition) is None
        asking = asyncio.create_task(waiting.committed(partition))
        assert await waiting.getmany(timeout_ms=300) == {}
        assert not asking.done()
        await producer.commit_transaction()
        assert await asking == 1
        assert (await waiting.getone()).value == b"2"


@pytest.mark.parametrize("is_committed", [True, False])
async def test_transactions_without_asyncio(bootstrap: str, topic: str, is_committed: bool) -> None:
    """Blocks of plain `with` do the same."""

    def write() -> None:
        with SyncProducer(bootstrap_servers=bootstrap, transactional_id=topic) as producer:
            with producer.transaction():
                producer.send(topic, b"first", partition=0)
            producer.begin_transaction()
            future = producer.send(topic, b"second", partition=1)
            producer.send_offsets_to_transaction({TopicPartition(topic, 0): 1}, "group")
            if is_committed:
                producer.commit_transaction()
                assert future.result(0).offset == 0
            else:
                producer.abort_transaction()

    await asyncio.to_thread(write)
    await assert_committed(bootstrap, topic, Counter([b"first", *([b"second"] if is_committed else [])]))


async def test_many_producers_at_once(bootstrap: str, topic: str) -> None:
    """Their transactions lie among each other in the same partitions."""

    async def work(name: bytes, commits: Callable[[int], bool]) -> list[bytes]:
        committed = []
        async with transactional(bootstrap, f"{topic}-{name.decode()}") as producer:
            for number in range(6):
                await producer.begin_transaction()
                values = [b"%b-%d-%d" % (name, number, each) for each in range(9)]
                for each, value in enumerate(values):
                    await producer.send_and_wait(topic, value, partition=each % PARTITIONS)
                if commits(number):
                    await producer.commit_transaction()
                    committed += values
                else:
                    await producer.abort_transaction()
        return committed

    written = await asyncio.gather(
        work(b"all", lambda number: True), work(b"none", lambda number: False), work(b"some", lambda number: number > 2)
    )
    await assert_committed(bootstrap, topic, Counter(value for some in written for value in some))


async def test_a_transaction_outlasts_a_restart_of_the_broker(process: BrokerProcess, topic: str) -> None:
    """Of its coordinator, its leaders and the coordinator of its group, while records and offsets are under way."""
    group = group_name()
    async with transactional(process.bootstrap, topic) as producer:
        await producer.begin_transaction()
        values = [b"%d" % number for number in range(100)]
        deliveries = [await producer.send(topic, value, partition=0) for value in values[:50]]
        await asyncio.gather(*deliveries)
        await asyncio.to_thread(process.stop)
        for number, value in enumerate(values[50:]):
            await producer.send(topic, value, partition=number % PARTITIONS)
        adding = asyncio.create_task(producer.send_offsets_to_transaction({TopicPartition(topic, 0): 7}, group))
        await asyncio.to_thread(process.start)
        await adding
        await producer.commit_transaction()
    await assert_committed(process.bootstrap, topic, Counter(values))
    async with Consumer(bootstrap_servers=process.bootstrap, group_id=group) as consumer:
        assert await consumer.committed(TopicPartition(topic, 0)) == 7


async def test_the_examples_of_the_page_do_what_it_says(bootstrap: str) -> None:
    """docs/TRANSACTIONS.md, from top to bottom."""
    examples: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        # Each has imports of its own.
        names: dict[str, Any] = {}
        exec(compile(code, str(PAGE), "exec"), names)
        examples |= names
    for name in ("orders", "payments", "invoices"):
        await create_topic(bootstrap, name, PARTITIONS)
    await examples["write"](bootstrap)
    await asyncio.to_thread(examples["write_blocking"], bootstrap)
    copying = asyncio.create_task(examples["copy"](bootstrap, "1"))
    await assert_committed(bootstrap, "invoices", Counter([b"order 1", b"order 2"]))
    copying.cancel()
    await asyncio.wait([copying])
    await assert_committed(bootstrap, "payments", Counter([b"payment 1", b"payment 2"]))
