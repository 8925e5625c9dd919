"""Each client produces and consumes, in the ways that its users do."""

from __future__ import annotations

import time

import pytest
from tests.interop.clients import aio, python
from tests.interop.clients.record import DEADLINE_S, Acks, Client, ClientError, Producing, Sent
from tests.interop.conftest import CreateTopic
from tests.interop.raw import RawConnection, stored_batches
from tests.kit.broker_process import BrokerProcess

RECORDS = [Sent(f"value {number}".encode(), f"key {number}".encode()) for number in range(20)]


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_records_arrive_with_any_acks(acks: Acks, client: Client, broker: BrokerProcess, topic: str) -> None:
    """What is produced is consumed, in order, and acknowledgements tell the offsets."""
    offsets = client.produce(broker.bootstrap, topic, RECORDS, Producing(acks=acks))
    received = client.consume(broker.bootstrap, topic, len(RECORDS))

    assert [(record.key, record.value) for record in received] == [(record.key, record.value) for record in RECORDS]
    assert [record.offset for record in received] == list(range(len(RECORDS)))
    assert offsets in (list(range(len(RECORDS))), [-1] * len(RECORDS))


def test_idempotent_producers_get_an_id_and_number_their_batches(
    client: Client, broker: BrokerProcess, topic: str
) -> None:
    """Every batch bears the id, and sequences go on without a gap."""
    client.produce(broker.bootstrap, topic, RECORDS, Producing(idempotent=True))

    batches = stored_batches(broker.bootstrap, topic)
    assert {batch.producer_id for batch in batches} != {-1}
    assert len({(batch.producer_id, batch.producer_epoch) for batch in batches}) == 1
    assert [batch.base_sequence for batch in batches] == [batch.base_offset for batch in batches]
    assert [record.value for record in client.consume(broker.bootstrap, topic, len(RECORDS))] == [
        record.value for record in RECORDS
    ]


def test_producers_that_follow_each_other_have_different_ids(client: Client, broker: BrokerProcess, topic: str) -> None:
    """No id is given twice."""
    for _ in range(2):
        client.produce(broker.bootstrap, topic, RECORDS[:1], Producing(idempotent=True))

    assert len({batch.producer_id for batch in stored_batches(broker.bootstrap, topic)}) == 2


def test_a_burst_of_records_travels_in_few_batches(client: Client, broker: BrokerProcess, topic: str) -> None:
    """Batches stay whole on their way through the broker, and all records come out in order."""
    values = [b"%d" % number for number in range(5000)]
    client.produce(broker.bootstrap, topic, [Sent(value) for value in values], Producing(linger_ms=50))

    assert len(stored_batches(broker.bootstrap, topic)) < len(values) / 10
    assert [record.value for record in client.consume(broker.bootstrap, topic, len(values))] == values


def test_partitions_are_logs_of_their_own(client: Client, broker: BrokerProcess, create_topic: CreateTopic) -> None:
    """Offsets are counted in each partition, and records stay where they were sent."""
    topic = create_topic(partitions=3)
    for partition in range(3):
        client.produce(broker.bootstrap, topic, [Sent(b"%d" % partition)] * 2, partition=partition)

    for partition in range(3):
        received = client.consume(broker.bootstrap, topic, 2, partition=partition)
        assert [(record.offset, record.value) for record in received] == [
            (0, b"%d" % partition),
            (1, b"%d" % partition),
        ]


def test_the_broker_stamps_records_where_the_topic_says_so(
    client: Client, broker: BrokerProcess, create_topic: CreateTopic
) -> None:
    """With LogAppendTime all records of a batch have the time of their append."""
    topic = create_topic(message_timestamp_type="LogAppendTime")
    earliest_ms = time.time_ns() // 1_000_000
    client.produce(broker.bootstrap, topic, RECORDS)
    latest_ms = time.time_ns() // 1_000_000

    for record in client.consume(broker.bootstrap, topic, len(RECORDS)):
        assert earliest_ms <= record.timestamp_ms <= latest_ms


def test_a_keyless_record_is_refused_by_a_compacted_topic(
    client: Client, broker: BrokerProcess, create_topic: CreateTopic
) -> None:
    """The client learns of it, and the log stays empty."""
    topic = create_topic(cleanup_policy="compact")

    with pytest.raises(ClientError):
        client.produce(broker.bootstrap, topic, [Sent(b"value")])
    with RawConnection(broker.bootstrap) as connection:
        assert connection.end_offset(topic) == 0


def test_kafka_python_iterates_over_records(broker: BrokerProcess, topic: str) -> None:
    """A consumer is an iterator, which ends when nothing comes any more."""
    python.KafkaPython().produce(broker.bootstrap, topic, RECORDS)

    with python.consumer(broker.bootstrap, consumer_timeout_ms=int(DEADLINE_S * 1000)) as consumer:
        assigned = python.TopicPartition(topic, 0)
        consumer.assign([assigned])
        consumer.seek_to_beginning(assigned)
        received = [python.as_received(record) for _, record in zip(RECORDS, consumer, strict=False)]
        assert consumer.position(assigned) == len(RECORDS)
    assert [record.value for record in received] == [record.value for record in RECORDS]


async def test_aiokafka_iterates_over_records(broker: BrokerProcess, topic: str) -> None:
    """A consumer is an asynchronous iterator, and waits for what is produced meanwhile."""
    values: list[bytes] = []
    async with aio.consumer(broker.bootstrap) as consumer:
        assigned = aio.TopicPartition(topic, 0)
        consumer.assign([assigned])
        await consumer.seek_to_beginning(assigned)
        async with aio.AIOKafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
            for record in RECORDS:
                await producer.send_and_wait(topic, record.value, record.key)
                values.append((await consumer.getone()).value)
    assert values == [record.value for record in RECORDS]
