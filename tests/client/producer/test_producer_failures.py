"""The producer against a scripted broker that refuses, loses and delays; and its bounds."""

from __future__ import annotations

import asyncio

import pytest
from tests.client.producer.scripted_producing import Brokers, producing
from tests.client.scripted_broker import HANGUP, Reply, scripted_broker
from tests.kit.coroutines import BOTH_LOOPS

from ottla.client.errors import (
    InvalidRecordError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.records import RecordBatch

pytestmark = BOTH_LOOPS


async def test_retriable_errors_are_retried_in_order() -> None:
    """With several batches in flight, whose numbers stay the same."""
    brokers = Brokers()
    seen = 0
    expected = 0

    def judge(partition: TopicPartition, batch: RecordBatch) -> int | Reply | None:
        nonlocal seen, expected
        seen += 1
        if seen in (3, 7, 8, 15):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if seen == 20:
            return HANGUP
        if batch.base_sequence != expected:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        expected += batch.record_count
        return None

    brokers.judge = judge
    async with producing(brokers, max_batch_size=200) as producer:
        deliveries = [await producer.send("t", b"%d" % number, partition=0) for number in range(200)]
        metadata = await asyncio.gather(*deliveries)

    assert [one.offset for one in metadata] == list(range(200))
    assert brokers.log[TopicPartition("t", 0)] == [b"%d" % number for number in range(200)]
    assert {batch.producer_epoch for _, batch in brokers.batches} == {0}


async def test_a_refused_batch_fails_alone() -> None:
    """Those behind it go under a new epoch, and those of other partitions do not even notice."""
    brokers = Brokers()
    expected = [0, 0]

    def judge(partition: TopicPartition, batch: RecordBatch) -> int | Reply | None:
        if partition.partition == 1:
            return None
        if any(record.value == b"bad" for record in batch.records()):
            return ErrorCode.MESSAGE_TOO_LARGE
        if batch.producer_epoch != expected[0]:
            expected[:] = batch.producer_epoch, 0
        if batch.base_sequence != expected[1]:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        expected[1] += batch.record_count
        return None

    brokers.judge = judge
    async with producing(brokers, max_batch_size=150) as producer:
        values = [b"bad" if number == 20 else b"%d" % number for number in range(40)]
        padded = [value if value == b"bad" else value + bytes(60) for value in values]
        deliveries = [await producer.send("t", value, partition=0) for value in padded]
        others = [await producer.send("t", value, partition=1) for value in values]
        results = await asyncio.gather(*deliveries, return_exceptions=True)
        await asyncio.gather(*others)

    failed = [result for result in results if isinstance(result, Exception)]
    assert 1 <= len(failed) <= 3
    assert all(isinstance(error, MessageSizeTooLargeError) for error in failed)
    written = [value.rstrip(b"\0") for value in brokers.log[TopicPartition("t", 0)] if value]
    assert written == [value for value, result in zip(values, results, strict=True) if result not in failed]


async def test_a_partition_without_an_answer_does_not_hold_up_the_others() -> None:
    """It fails when its time is over, and says why."""
    brokers = Brokers()
    brokers.leaders = {"t": [1, -1]}
    async with producing(brokers, delivery_timeout_ms=200) as producer:
        stuck = await producer.send("t", b"", partition=1)
        for _ in range(3):
            await producer.send_and_wait("t", b"", partition=0)
        with pytest.raises(KafkaTimeoutError, match=r"t-1 did not acknowledge 1 records.*no leader"):
            await stuck


async def test_a_leader_that_commits_nothing_is_the_last_to_be_asked_who_leads() -> None:
    """It may be cut off from the others, which have another leader, and would name itself for ever."""
    alone, one, other = Brokers(), Brokers(), Brokers()
    alone.judge = lambda partition, batch: ErrorCode.REQUEST_TIMED_OUT
    async with scripted_broker(one.answer) as first, scripted_broker(other.answer) as second:
        alone.others = {2: first.address, 3: second.address}
        async with producing(alone) as producer:
            for brokers in (one, other):
                brokers.broker, brokers.others, brokers.leaders, brokers.leader_epoch = (
                    alone.broker,
                    alone.others,
                    {"t": [2, 2, 2]},
                    1,
                )
            await producer.send_and_wait("t", b"", partition=0)

    assert alone.batches
    assert one.log[TopicPartition("t", 0)] == [b""]


async def test_an_expired_batch_does_not_fail_the_later_ones() -> None:
    """Though its numbers are missing in the log."""
    brokers = Brokers()
    expected = [0, 0]

    def judge(partition: TopicPartition, batch: RecordBatch) -> int | Reply | None:
        if any(record.value == b"stuck" for record in batch.records()):
            return ErrorCode.NOT_ENOUGH_REPLICAS
        if batch.producer_epoch != expected[0]:
            expected[:] = batch.producer_epoch, 0
        if batch.base_sequence != expected[1]:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        expected[1] += batch.record_count
        return None

    brokers.judge = judge
    async with producing(brokers, delivery_timeout_ms=300) as producer:
        await producer.send_and_wait("t", b"first", partition=0)
        with pytest.raises(KafkaTimeoutError, match="NOT_ENOUGH_REPLICAS"):
            await producer.send_and_wait("t", b"stuck", partition=0)
        for _ in range(3):
            await producer.send_and_wait("t", b"later", partition=0)

    assert brokers.log[TopicPartition("t", 0)] == [b"first", b"later", b"later", b"later"]


async def test_send_waits_while_the_buffer_is_full_and_times_out_in_the_end() -> None:
    """Nothing is lost of what was taken."""
    brokers = Brokers()
    brokers.gate.clear()
    options = {"max_batch_size": 1000, "max_request_size": 1000, "buffer_memory": 3000}
    async with producing(brokers, max_block_ms=50, **options) as producer:
        sent = []

        async def fill() -> None:
            while True:
                sent.append(await producer.send("t", bytes(100), partition=0))

        with pytest.raises(KafkaTimeoutError, match="buffer_memory of 3000 bytes was full"):
            await fill()
        assert 0 < len(sent) <= 30
        brokers.gate.set()
        await asyncio.gather(*sent)
        await producer.send_and_wait("t", b"", partition=0)
    async with producing(brokers, **options) as producer:
        await asyncio.gather(*[producer.send_and_wait("t", bytes(100), partition=0) for _ in range(200)])

    assert len(brokers.log[TopicPartition("t", 0)]) == len(sent) + 1 + 200


async def test_bad_records_are_refused_when_they_are_sent() -> None:
    """And leave the producer as it was."""
    brokers = Brokers()
    async with producing(brokers, max_request_size=2000, max_batch_size=1000) as producer:
        with pytest.raises(MessageSizeTooLargeError, match="max_request_size=2000"):
            await producer.send("t", bytes(2000))
        with pytest.raises(TypeError, match="the value of a record must be bytes, not str"):
            await producer.send("t", "text")
        with pytest.raises(InvalidRecordError, match="UTF-8"):
            await producer.send("t", b"", headers=[("\ud800", b"")])
        with pytest.raises(InvalidRecordError, match="out of range"):
            await producer.send_and_wait("t", b"", timestamp_ms=1 << 80)
        assert (await producer.send_and_wait("t", bytearray(1500), partition=0)).offset == 0


async def test_a_topic_that_may_not_be_used_or_does_not_exist_is_an_error_of_send(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A missing one only after a while, as it may just have been created."""
    monkeypatch.setattr("ottla.client.producer.producer._MISSING_TOPIC_WAIT_S", 0.02)
    brokers = Brokers()
    brokers.errors = {"secret": 29, "missing": 3}
    async with producing(brokers) as producer:
        with pytest.raises(TopicAuthorizationFailedError, match="secret"):
            await producer.send("secret", b"")
        with pytest.raises(UnknownTopicOrPartitionError, match="missing"):
            await producer.send("missing", b"")


async def test_a_backoff_that_ends_at_once_is_no_error() -> None:
    """uvloop makes no timer for less than a millisecond, and what it makes instead does not tell its time."""
    async with producing(Brokers()) as producer:
        loop, sender = asyncio.get_running_loop(), producer._sender
        assert sender is not None
        for wait_s in (0.0, 0.0, 5.0, -1.0):
            sender._schedule_at(loop.time() + wait_s)
        await producer.send_and_wait("t", b"value")
