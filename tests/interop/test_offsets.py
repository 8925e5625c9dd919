"""Where consumers begin: at the start, at the end, at an offset, at a time; and where they cannot."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, TopicPartition
from tests.interop.clients import aio, confluent, kcat, python
from tests.interop.clients.all import available
from tests.interop.clients.confluent import Confluent
from tests.interop.clients.kcat import Kcat
from tests.interop.clients.record import DEADLINE_S, Client, ClientError, Producing, Sent
from tests.kit.broker_process import BrokerProcess

from ottla.protocol.errors import ErrorCode

COUNT = 30
# An hour ago: what is older than `log.retention.hours` may be deleted under a test.
FIRST_MS = time.time_ns() // 1_000_000 - 3_600_000
STEP_MS = 1000


@pytest.fixture
def filled(broker: BrokerProcess, topic: str) -> str:
    """A topic with records a second apart, ten to a batch."""
    for first in range(0, COUNT, 10):
        records = [
            Sent(b"%d" % number, timestamp_ms=FIRST_MS + number * STEP_MS) for number in range(first, first + 10)
        ]
        Confluent().produce(broker.bootstrap, topic, records, Producing(linger_ms=50))
    return topic


def test_a_consumer_starts_at_any_offset(client: Client, broker: BrokerProcess, filled: str) -> None:
    """Also in the middle of a batch."""
    for start in (0, 1, 9, 10, 15, COUNT - 1):
        (received,) = client.consume(broker.bootstrap, filled, 1, start=start)
        assert (received.offset, received.value) == (start, b"%d" % start)


@pytest.mark.parametrize("start", [COUNT + 1, COUNT + 1_000_000])
def test_an_offset_that_the_log_does_not_have_is_out_of_range(
    start: int, client: Client, broker: BrokerProcess, filled: str
) -> None:
    """The user of every client is told OFFSET_OUT_OF_RANGE."""
    with pytest.raises(ClientError) as refusal:
        client.consume(broker.bootstrap, filled, 1, start=start)

    assert refusal.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_confluent_kafka_seeks(broker: BrokerProcess, filled: str) -> None:
    """To the beginning, the end, and the first record at or after a time."""
    at = TopicPartition(filled, 0)
    with confluent.consumer(broker.bootstrap, enable_partition_eof=True) as client:
        assert client.get_watermark_offsets(at, DEADLINE_S) == (0, COUNT)

        client.assign([TopicPartition(filled, 0, OFFSET_END)])
        assert client.poll(DEADLINE_S).error().code() == KafkaError._PARTITION_EOF
        Confluent().produce(broker.bootstrap, filled, [Sent(b"new")])
        assert client.poll(DEADLINE_S).value() == b"new"
        assert client.poll(DEADLINE_S).error().code() == KafkaError._PARTITION_EOF
        client.seek(TopicPartition(filled, 0, OFFSET_BEGINNING))
        assert confluent.receive(client, 1)[0].offset == 0

        for time_ms, offset in ((0, 0), (FIRST_MS + 1, 1), (FIRST_MS + 15 * STEP_MS, 15)):
            (found,) = client.offsets_for_times([TopicPartition(filled, 0, time_ms)], DEADLINE_S)
            assert found.offset == offset
            client.seek(found)
            assert confluent.receive(client, 1)[0].offset == offset
        far_ms = 4_000_000_000_000
        assert client.offsets_for_times([TopicPartition(filled, 0, far_ms)], DEADLINE_S)[0].offset == OFFSET_END


def test_kafka_python_seeks(broker: BrokerProcess, filled: str) -> None:
    """To the beginning, the end, and the first record at or after a time."""
    at = python.TopicPartition(filled, 0)
    with python.consumer(broker.bootstrap) as client:
        client.assign([at])
        assert client.beginning_offsets([at]) == {at: 0}
        assert client.end_offsets([at]) == {at: COUNT}

        client.seek_to_end(at)
        assert client.position(at) == COUNT
        Confluent().produce(broker.bootstrap, filled, [Sent(b"new")])
        assert python.receive(client, 1)[0].value == b"new"
        client.seek_to_beginning(at)
        assert python.receive(client, 1)[0].offset == 0

        for time_ms, offset in ((0, 0), (FIRST_MS + 1, 1), (FIRST_MS + 15 * STEP_MS, 15)):
            found = client.offsets_for_times({at: time_ms})[at]
            assert (found.offset, found.timestamp) == (offset, FIRST_MS + offset * STEP_MS)
        assert client.offsets_for_times({at: 4_000_000_000_000}) == {at: None}


async def test_aiokafka_seeks(broker: BrokerProcess, filled: str) -> None:
    """To the beginning, the end, and the first record at or after a time."""
    at = aio.TopicPartition(filled, 0)
    async with aio.consumer(broker.bootstrap) as client:
        client.assign([at])
        assert await client.beginning_offsets([at]) == {at: 0}
        assert await client.end_offsets([at]) == {at: COUNT}

        await client.seek_to_end(at)
        assert await client.position(at) == COUNT
        async with aio.AIOKafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
            await producer.send_and_wait(filled, b"new", partition=0)
        assert (await aio.receive(client, 1))[0].value == b"new"
        await client.seek_to_beginning(at)
        assert (await aio.receive(client, 1))[0].offset == 0

        for time_ms, offset in ((0, 0), (FIRST_MS + 1, 1), (FIRST_MS + 15 * STEP_MS, 15)):
            found = (await client.offsets_for_times({at: time_ms}))[at]
            assert (found.offset, found.timestamp) == (offset, FIRST_MS + offset * STEP_MS)
        assert await client.offsets_for_times({at: 4_000_000_000_000}) == {at: None}


def test_kcat_seeks(broker: BrokerProcess, filled: str) -> None:
    """From the beginning to the end, the last so many, and from one time to another."""
    available(Kcat())

    def offsets(*arguments: str) -> list[int]:
        said = kcat.kcat(broker.bootstrap, "-C", "-q", "-t", filled, "-p", "0", "-e", "-f", "%o\n", *arguments)
        return [int(line) for line in said.splitlines()]

    assert offsets("-o", "beginning") == list(range(COUNT))
    assert offsets("-o", "-3") == list(range(COUNT - 3, COUNT))
    assert offsets("-o", "end") == []
    from_ms, to_ms = FIRST_MS + 12 * STEP_MS, FIRST_MS + 17 * STEP_MS
    assert offsets("-o", f"s@{from_ms}", "-o", f"e@{to_ms}") == list(range(12, 17))
    said = kcat.kcat(broker.bootstrap, "-Q", "-t", f"{filled}:0:{from_ms}")
    assert said.strip() == f"{filled} [0] offset 12"
