"""Batches that are larger than their topic allows: the producer sends their records in smaller ones (KIP-126)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.client.consumer.consuming import member, read
from tests.client.producer.scripted_producing import Brokers, Judge, producing
from tests.client.scripted_broker import HANGUP, Reply
from tests.interop.raw import stored_batches
from tests.kit.broker_process import BrokerProcess
from tests.kit.coroutines import BOTH_LOOPS
from tests.kit.examples import examples

from ottla.client.admin.admin import Admin
from ottla.client.admin.results import NewTopic
from ottla.client.errors import MessageSizeTooLargeError
from ottla.client.producer.batch_split import halves
from ottla.client.producer.producer import Producer
from ottla.client.producer.settings import CompressionType
from ottla.client.types import TopicPartition
from ottla.protocol.errors import ErrorCode
from ottla.protocol.record_batch_builder import RecordBatchBuilder
from ottla.protocol.records import RecordBatch

ZERO = TopicPartition("t", 0)
LIMIT = 400


def limited(limit: int = LIMIT) -> Judge:
    """Return a judge that refuses large batches, and wrong sequences as a broker does."""
    expected = [0, 0]

    def judge(partition: TopicPartition, batch: RecordBatch) -> int | Reply | None:
        if batch.size > limit:
            return ErrorCode.MESSAGE_TOO_LARGE
        if batch.producer_epoch < 0:
            return None
        if batch.producer_epoch != expected[0]:
            expected[:] = batch.producer_epoch, 0
        if batch.base_sequence != expected[1]:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        expected[1] += batch.record_count
        return None

    return judge


@BOTH_LOOPS
@pytest.mark.parametrize("idempotent", [True, False])
async def test_batches_that_are_too_large_are_split_and_written_in_order(idempotent: bool) -> None:
    """Several of them in flight; every delivery has the offset of its record, and all sequences stay in one epoch."""
    brokers = Brokers()
    brokers.judge = limited()
    values = [b"%d" % number + bytes(number % 70) for number in range(300)]
    async with producing(brokers, max_batch_size=2000, linger_ms=5, enable_idempotence=idempotent) as producer:
        sent = [
            await producer.send("t", value, partition=0, timestamp_ms=number) for number, value in enumerate(values)
        ]
        metadata = await asyncio.gather(*sent)
        assert all(delivery.done() and delivery.exception() is None for delivery in sent)
        assert producer.unwritten == 0
        assert producer._sender is not None
        memory = producer._sender.accumulator.memory
        assert memory.free == memory.total

    assert brokers.log[ZERO] == values
    assert [one.offset for one in metadata] == list(range(300))
    assert [one.timestamp for one in metadata] == list(range(300))
    assert {batch.producer_epoch for _, batch in brokers.batches} == {0 if idempotent else -1}
    assert max(batch.size for _, batch in brokers.batches) > LIMIT


@BOTH_LOOPS
async def test_a_record_that_is_too_large_fails_alone() -> None:
    """Those of the same batch before and behind it are written."""
    brokers = Brokers()
    brokers.judge = limited()
    values = [bytes(LIMIT) if number == 10 else b"%d" % number for number in range(30)]
    async with producing(brokers, max_batch_size=4000, linger_ms=5) as producer:
        sent = [await producer.send("t", value, partition=0) for value in values]
        results = await asyncio.gather(*sent, return_exceptions=True)

    assert [number for number, result in enumerate(results) if isinstance(result, Exception)] == [10]
    assert isinstance(results[10], MessageSizeTooLargeError)
    assert brokers.log[ZERO] == [value for value in values if len(value) < LIMIT]


@BOTH_LOOPS
@pytest.mark.parametrize("idempotent", [True, False])
async def test_a_batch_that_may_be_in_the_log_is_split_only_without_idempotence(idempotent: bool) -> None:
    """The broker would not recognise its halves as what it has."""
    brokers = Brokers()
    attempts = 0

    def judge(partition: TopicPartition, batch: RecordBatch) -> int | Reply | None:
        nonlocal attempts
        attempts += 1
        return HANGUP if attempts == 1 else ErrorCode.MESSAGE_TOO_LARGE if batch.record_count > 1 else None

    brokers.judge = judge
    async with producing(brokers, linger_ms=5, enable_idempotence=idempotent) as producer:
        sent = [await producer.send("t", value, partition=0) for value in (b"a", b"b")]
        results = await asyncio.gather(*sent, return_exceptions=True)

    refused = [isinstance(result, MessageSizeTooLargeError) for result in results]
    assert refused == [idempotent, idempotent]
    assert brokers.log[ZERO] == ([] if idempotent else [b"a", b"b"])


@BOTH_LOOPS
async def test_a_batch_of_the_caller_is_not_split() -> None:
    """Its records are written together or not at all."""
    brokers = Brokers()
    brokers.judge = limited()
    async with producing(brokers) as producer:
        batch = producer.create_batch()
        for _ in range(10):
            batch.append(value=bytes(100))
        with pytest.raises(MessageSizeTooLargeError):
            await (await producer.send_batch(batch, "t", partition=0))

    assert not brokers.log[ZERO]


Records = list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]
some_bytes = st.none() | st.binary(max_size=200)
some_records = st.lists(
    st.tuples(st.integers(-5, 1 << 40), some_bytes, some_bytes, st.lists(st.tuples(st.text(max_size=5), some_bytes))),
    min_size=1,
    max_size=30,
)


@given(some_records)
@examples(100)
def test_halves_have_all_records_in_order(records: Records) -> None:
    """Each is at most half as large or has one record, so that splitting comes to an end."""
    builder = RecordBatchBuilder()
    for timestamp, key, value, headers in records:
        builder.append(timestamp, key, value, headers)

    made = halves(builder)

    opened = [record for half in made for record in RecordBatch(half.build()).records()]
    assert [(one.timestamp, one.key, one.value, list(one.headers)) for one in opened] == records
    assert all(half.record_count == 1 or half.size <= builder.size // 2 for half in made)
    assert len(made) > 1 or len(records) == 1


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("transactional", [False, True], ids=["idempotent", "transactional"])
async def test_a_broker_gets_the_records_in_batches_that_it_takes(
    broker: BrokerProcess, topic: str, codec: CompressionType, transactional: bool
) -> None:
    """A topic with max.message.bytes below the batch size of the producer has every record, once and in order."""
    async with Admin(bootstrap_servers=broker.bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, configs={"max.message.bytes": "5000"})])
    values = _hard_to_compress(400)
    options: dict[str, Any] = {"transactional_id": topic} if transactional else {}
    async with Producer(
        bootstrap_servers=broker.bootstrap, compression_type=codec, linger_ms=20, **options
    ) as producer:
        if transactional:
            await producer.begin_transaction()
        sent = [await producer.send(topic, value, partition=0) for value in values]
        metadata = await asyncio.gather(*sent)
        if transactional:
            await producer.commit_transaction()

    assert [one.offset for one in metadata] == list(range(len(values)))
    async with member(broker.bootstrap, topic, topic, isolation_level="read_committed") as consumer:
        assert await read(consumer, len(values)) == values
    sizes = [batch.size for batch in await asyncio.to_thread(stored_batches, broker.bootstrap, topic)]
    assert max(sizes) <= 5000


def _hard_to_compress(count: int) -> Sequence[bytes]:
    random = Random(7)
    return [random.randbytes(random.randrange(10, 400)) for _ in range(count)]
