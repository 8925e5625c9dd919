"""Transactions with aiokafka, on our broker as on Kafka's."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import pytest
from aiokafka.errors import IllegalOperation, InvalidTransactionTimeout, KafkaError, ProducerFenced
from tests.interop.clients import aio
from tests.interop.clients.aio import AioKafka, AIOKafkaProducer, TopicPartition
from tests.interop.clients.record import Sent
from tests.interop.conftest import CreateTopic
from tests.kit.broker_process import BrokerProcess
from tests.kit.waiting import until_async

COMMITTED, ANY = "read_committed", "read_uncommitted"
COPIED = 40


class GivenUpError(Exception):
    """A program fails amid a transaction."""


@asynccontextmanager
async def producer(broker: BrokerProcess, transactional_id: str, **options: Any) -> AsyncIterator[Any]:
    """Give a producer that is started, and so has fenced an earlier one of the same id."""
    client = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=transactional_id, **options)
    try:
        await client.start()
        yield client
    finally:
        # One that was fenced says so once more.
        with suppress(KafkaError):
            await client.stop()


async def send(client: Any, topic: str, *values: bytes, partition: int = 0) -> None:
    """Send values, and wait until the broker has them."""
    for value in values:
        await client.send_and_wait(topic, value, partition=partition)


async def end(broker: BrokerProcess, topic: str, isolation: str = COMMITTED) -> int:
    """Return the offset at which a reader of this kind finds the end of a topic's only partition."""
    partition = TopicPartition(topic, 0)
    async with aio.consumer(broker.bootstrap, isolation_level=isolation) as client:
        client.assign([partition])
        offset: int = (await client.end_offsets([partition]))[partition]
        return offset


async def read(broker: BrokerProcess, topic: str, isolation: str = COMMITTED) -> list[bytes | None]:
    """Return the values that a reader of this kind finds in a topic's only partition, when all markers are there."""
    partition = TopicPartition(topic, 0)

    async def is_stable() -> bool:
        return await end(broker, topic) == await end(broker, topic, ANY)

    await until_async(is_stable, f"all transactions in {topic} have ended")
    values: list[bytes | None] = []
    async with aio.consumer(broker.bootstrap, isolation_level=isolation) as client:
        client.assign([partition])
        client.seek(partition, 0)
        last = (await client.end_offsets([partition]))[partition]
        while await client.position(partition) < last:
            found = await client.getmany(timeout_ms=100)
            values += [record.value for records in found.values() for record in records]
    return values


async def test_committed_records_are_read_and_aborted_ones_only_by_who_wants_them(
    broker: BrokerProcess, topic: str, transactional_id: str
) -> None:
    """With `async with producer.transaction()`, which aborts when an error leaves it, and with plain calls."""
    async with producer(broker, transactional_id) as client:
        async with client.transaction():
            await send(client, topic, b"a", b"b")
        with suppress(GivenUpError):
            async with client.transaction():
                await send(client, topic, b"c")
                raise GivenUpError
        await client.begin_transaction()
        await send(client, topic, b"d")
        await client.abort_transaction()
        await client.begin_transaction()
        await send(client, topic, b"e")
        await client.commit_transaction()

    assert await read(broker, topic) == [b"a", b"b", b"e"]
    assert await read(broker, topic, ANY) == [b"a", b"b", b"c", b"d", b"e"]


async def test_producers_take_turns_in_one_partition(broker: BrokerProcess, topic: str, transactional_id: str) -> None:
    """Each transaction has its own outcome, in whatever order they begin, write and end."""
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(producer(broker, f"{transactional_id}-{n}")) for n in range(3)]
        for client in clients:
            await client.begin_transaction()
        for step in range(4):
            for number, client in enumerate(clients):
                await send(client, topic, b"%d-%d" % (number, step))
        await clients[1].abort_transaction()
        await clients[2].commit_transaction()
        await clients[0].commit_transaction()

    everything = [(number, step) for step in range(4) for number in range(3)]
    assert await read(broker, topic, ANY) == [b"%d-%d" % each for each in everything]
    assert await read(broker, topic) == [b"%d-%d" % each for each in everything if each[0] != 1]


async def test_transactions_run_side_by_side(
    broker: BrokerProcess, create_topic: CreateTopic, transactional_id: str
) -> None:
    """Of many producers at once, in several partitions each; readers see whole transactions."""
    topics = [create_topic() for _ in range(3)]

    async def write(number: int) -> None:
        async with producer(broker, f"{transactional_id}-{number}") as client:
            for turn in range(5):
                await client.begin_transaction()
                futures = [await client.send(topic, b"%d-%d" % (number, turn), partition=0) for topic in topics]
                await asyncio.gather(*futures)
                if (number + turn) % 3:
                    await client.commit_transaction()
                else:
                    await client.abort_transaction()

    await asyncio.gather(*(write(number) for number in range(6)))

    kept = Counter(b"%d-%d" % (number, turn) for number in range(6) for turn in range(5) if (number + turn) % 3)
    for topic in topics:
        assert Counter(await read(broker, topic)) == kept
        assert len(await read(broker, topic, ANY)) == 30


async def test_an_open_transaction_holds_readers_back(broker: BrokerProcess, topic: str, transactional_id: str) -> None:
    """They stop at the last stable offset; the records behind it come with the outcome."""
    partition = TopicPartition(topic, 0)
    async with (
        producer(broker, transactional_id) as client,
        aio.consumer(broker.bootstrap, isolation_level=COMMITTED) as reader,
    ):
        reader.assign([partition])
        reader.seek(partition, 0)
        async with client.transaction():
            await send(client, topic, b"a")
        async with client.transaction():
            await send(client, topic, b"b", b"c")
            assert (await end(broker, topic), await end(broker, topic, ANY)) == (2, 4)
            assert [each.value for each in await aio.receive(reader, 1)] == [b"a"]
            assert await reader.getmany(timeout_ms=200) == {}
            assert reader.last_stable_offset(partition) == 2
        assert [each.value for each in await aio.receive(reader, 2)] == [b"b", b"c"]


async def test_empty_transactions_end_and_write_nothing(
    broker: BrokerProcess, topic: str, transactional_id: str
) -> None:
    """And the producer goes on after them."""
    async with producer(broker, transactional_id) as client:
        async with client.transaction():
            pass
        await client.begin_transaction()
        await client.abort_transaction()
        async with client.transaction():
            await send(client, topic, b"a")

    assert await read(broker, topic) == [b"a"]
    assert await end(broker, topic) == 2


async def test_what_is_not_allowed_is_refused(broker: BrokerProcess, topic: str, transactional_id: str) -> None:
    """Calls out of order by the client itself, too long a timeout by the broker."""
    async with producer(broker, transactional_id) as client:
        with pytest.raises(IllegalOperation):
            await client.send(topic, b"outside")
        with pytest.raises(IllegalOperation):
            await client.send_offsets_to_transaction({TopicPartition(topic, 0): 1}, "group")
    with pytest.raises(InvalidTransactionTimeout):
        async with producer(broker, transactional_id, transaction_timeout_ms=900_001):
            pass


async def test_a_second_instance_fences_the_first(broker: BrokerProcess, topic: str, transactional_id: str) -> None:
    """What the first has begun is aborted before the second begins."""
    async with producer(broker, transactional_id) as first:
        async with first.transaction():
            await send(first, topic, b"a")
        await first.begin_transaction()
        await send(first, topic, b"b")
        async with producer(broker, transactional_id) as second:
            assert await end(broker, topic) == await end(broker, topic, ANY) == 4
            with pytest.raises(ProducerFenced):
                await send(first, topic, b"zombie")
            with pytest.raises(ProducerFenced):
                await first.commit_transaction()
            async with second.transaction():
                await send(second, topic, b"c")

    assert await read(broker, topic) == [b"a", b"c"]
    assert b"zombie" not in await read(broker, topic, ANY)


async def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(
    broker: BrokerProcess, topic: str, transactional_id: str
) -> None:
    """Readers go on without it; another instance may go on with the id."""
    async with producer(broker, transactional_id, transaction_timeout_ms=200) as client:
        await client.begin_transaction()
        await send(client, topic, b"too late")

        async def is_aborted() -> bool:
            return await end(broker, topic) == 2

        await until_async(is_aborted, "the transaction is aborted")
        with pytest.raises(ProducerFenced):
            await client.commit_transaction()
    async with producer(broker, transactional_id) as client, client.transaction():
        await send(client, topic, b"next")

    assert await read(broker, topic) == [b"next"]


async def test_records_are_copied_exactly_once(
    broker: BrokerProcess, create_topic: CreateTopic, transactional_id: str, group: str
) -> None:
    """Consume, transform and produce in transactions, of which some are aborted, and some are given up by a crash."""
    source, target = create_topic(), create_topic()
    await asyncio.to_thread(
        AioKafka().produce, broker.bootstrap, source, [Sent(b"%d" % number) for number in range(COPIED)]
    )
    outcomes = iter(["commit", "abort", "commit", "crash", "abort", "crash"])
    async with AsyncExitStack() as crashed:
        is_done = False
        while not is_done:
            # Each one fences the one before it.
            writer = await crashed.enter_async_context(producer(broker, transactional_id))
            async with aio.consumer(
                broker.bootstrap, group_id=group, enable_auto_commit=False, isolation_level=COMMITTED
            ) as reader:
                is_done = await _copy(reader, writer, TopicPartition(source, 0), group, target, outcomes)

        async def is_committed() -> bool:
            async with aio.consumer(broker.bootstrap, group_id=group) as reader:
                return bool(await reader.committed(TopicPartition(source, 0)) == COPIED)

        # aiokafka does not wait for the markers of a transaction when it asks for offsets.
        await until_async(is_committed, "all is committed")
    assert await read(broker, target) == [b"copy of %d" % number for number in range(COPIED)]
    assert len(await read(broker, target, ANY)) > COPIED


async def _copy(reader: Any, writer: Any, source: TopicPartition, group: str, target: str, outcomes: Any) -> bool:
    """Copy five records at a time; return whether that is done, not given up amid a transaction."""
    reader.assign([source])
    position = await reader.committed(source) or 0
    reader.seek(source, position)
    while position < COPIED:
        await writer.begin_transaction()
        for record in await aio.receive(reader, 5):
            await writer.send(target, b"copy of " + (record.value or b""), partition=0)
        await writer.send_offsets_to_transaction({source: position + 5}, group)
        outcome = next(outcomes, "commit")
        if outcome == "commit":
            await writer.commit_transaction()
            position += 5
        elif outcome == "abort":
            await writer.abort_transaction()
            reader.seek(source, position)
        else:
            await writer.flush()
            return False
    return True
