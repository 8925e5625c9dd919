"""The producer against a scripted broker: what it sends, and what callers get back."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from tests.client.producer.scripted_producing import Brokers, producing
from tests.kit.coroutines import BOTH_LOOPS

from ottla.client.errors import (
    IllegalStateError,
    ProducerClosed,
    UnknownTopicOrPartitionError,
)
from ottla.client.producer.producer import Producer
from ottla.protocol.identifiers import TopicPartition

pytestmark = BOTH_LOOPS


async def test_records_get_the_offsets_at_which_they_are_written() -> None:
    """Each its own, from the one answer to its batch."""
    brokers = Brokers()
    async with producing(brokers) as producer:
        deliveries = [
            await producer.send("t", b"%d" % number, partition=1, timestamp_ms=number) for number in range(1000)
        ]
        metadata = await asyncio.gather(*deliveries)

    assert [one.offset for one in metadata] == list(range(1000))
    assert [one.timestamp for one in metadata] == list(range(1000))
    assert {one.topic_partition for one in metadata} == {TopicPartition("t", 1)}
    assert {(one.timestamp_type, one.log_start_offset) for one in metadata} == {(0, 0)}
    assert brokers.log[TopicPartition("t", 1)] == [b"%d" % number for number in range(1000)]
    assert brokers.acks == {-1}
    assert len(brokers.batches) < 10


async def test_keys_values_headers_and_timestamps_arrive_as_they_were_given() -> None:
    """Through the serializers."""
    brokers = Brokers()
    async with producing(brokers, key_serializer=str.encode, value_serializer=lambda n: b"%d" % n) as producer:
        await producer.send_and_wait("t", 5, "key", timestamp_ms=77, headers=[("h", b"1"), ("empty", None)])
        records = [record for _, batch in brokers.batches for record in batch.records()]

    assert [(one.key, one.value, one.timestamp) for one in records] == [(b"key", b"5", 77)]
    assert records[0].headers == [("h", b"1"), ("empty", None)]


async def test_the_brokers_time_counts_on_topics_that_have_it() -> None:
    """LogAppendTime."""
    brokers = Brokers()
    brokers.log_append_time = 1234
    async with producing(brokers) as producer:
        metadata = await producer.send_and_wait("t", b"", timestamp_ms=1)

    assert (metadata.timestamp, metadata.timestamp_type) == (1234, 1)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_batches_are_compressed_as_asked(codec: Any) -> None:
    """And hold the same records."""
    brokers = Brokers()
    async with producing(brokers, compression_type=codec) as producer:
        for number in range(50):
            await producer.send("t", b"%d" % number, partition=0)

    assert {batch.codec.config_name for _, batch in brokers.batches} == {codec}
    assert brokers.log[TopicPartition("t", 0)] == [b"%d" % number for number in range(50)]


async def test_records_without_a_key_fill_one_batch_after_the_other() -> None:
    """Rather than a little of many."""
    brokers = Brokers()
    async with producing(brokers, max_batch_size=1000, linger_ms=60_000) as producer:
        for _ in range(100):
            await producer.send("t", bytes(100))
        await producer.flush()

    counts = sorted(batch.record_count for _, batch in brokers.batches)
    assert sum(counts) == 100
    # All but the last one are full.
    assert len(set(counts[1:])) == 1
    assert counts[-1] >= 6


async def test_a_key_and_a_partitioner_decide_where_records_go() -> None:
    """A partition that is given comes first."""
    brokers = Brokers()
    async with producing(brokers) as producer:
        by_key = await producer.send_and_wait("t", b"", key=b"foobar")
        assert by_key.partition == (-790332482 & 0x7FFFFFFF) % 3
        assert (await producer.send_and_wait("t", b"", key=b"foobar", partition=0)).partition == 0
        with pytest.raises(UnknownTopicOrPartitionError, match="partitions 0 to 2, not 3"):
            await producer.send("t", b"", partition=3)
        assert await producer.partitions_for("t") == {0, 1, 2}
    async with producing(brokers, partitioner=lambda key, every, available: every[-1]) as producer:
        assert (await producer.send_and_wait("t", b"", key=b"foobar")).partition == 2


async def test_lingering_records_wait_for_company_but_not_when_flushed() -> None:
    """One batch for all of them."""
    brokers = Brokers()
    async with producing(brokers, linger_ms=60_000) as producer:
        for _ in range(5):
            delivery = await producer.send("t", b"", partition=0)
            await asyncio.sleep(0)
        assert not delivery.done()
        await producer.flush()
        assert delivery.done()
        assert delivery.exception() is None
    async with producing(brokers, linger_ms=5) as producer:
        await producer.send_and_wait("t", b"", partition=0)

    assert [batch.record_count for _, batch in brokers.batches] == [5, 1]


@pytest.mark.parametrize(("acks", "offset"), [(0, -1), (1, 0)])
async def test_fewer_acks_do_without_idempotence(acks: int, offset: int) -> None:
    """Without any, nobody says where the record is."""
    brokers = Brokers()
    async with producing(brokers, acks=acks) as producer:
        metadata = await producer.send_and_wait("t", b"a", partition=0)
        await producer.send("t", b"b", partition=0)
        await producer.flush()
        # Answers come in order: what was sent before a request is done when it is answered.
        with pytest.raises(UnknownTopicOrPartitionError):
            await producer.send("t", b"", partition=99)

    assert metadata.offset == offset
    assert brokers.acks == {acks}
    assert {batch.producer_id for _, batch in brokers.batches} == {-1}


async def test_batches_by_hand_are_written_as_they_are() -> None:
    """Until they are full."""
    brokers = Brokers()
    async with producing(brokers, max_batch_size=500) as producer:
        batch = producer.create_batch()
        indexes = []
        while (index := batch.append(value=bytes(50), key=b"k", timestamp=9, headers=[("h", b"")])) is not None:
            indexes.append(index)
        delivery = await producer.send_batch(batch, "t", partition=2)
        metadata = await delivery
        with pytest.raises(IllegalStateError, match="closed"):
            batch.append(value=b"")
        with pytest.raises(IllegalStateError, match="no records"):
            await producer.send_batch(producer.create_batch(), "t", partition=2)

    assert indexes == list(range(batch.record_count()))
    assert len(indexes) > 3
    assert (metadata.offset, metadata.partition, metadata.timestamp) == (0, 2, 9)
    assert [batch.record_count for _, batch in brokers.batches] == [len(indexes)]


async def test_cancelling_who_waits_disturbs_nobody_else() -> None:
    """The record is written all the same."""
    brokers = Brokers()
    brokers.gate.clear()
    async with producing(brokers) as producer:
        delivery = await producer.send("t", b"", partition=0)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(delivery, 0.01)
        brokers.gate.set()
        assert (await delivery).offset == 0


async def test_a_producer_works_between_start_and_stop_only() -> None:
    """What was sent before stop is written."""
    brokers = Brokers()
    with pytest.raises(ProducerClosed, match="async with"):
        await Producer().send("t", b"")
    async with producing(brokers) as producer:
        delivery = await producer.send("t", b"", partition=0)
        with pytest.raises(IllegalStateError):
            await producer.start()
    assert (await delivery).offset == 0
    with pytest.raises(ProducerClosed):
        await producer.send("t", b"")
    with pytest.raises(ProducerClosed):
        await producer.flush()
