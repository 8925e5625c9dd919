"""Transactions of one client, read with another: confluent-kafka, aiokafka, kafka-python and kcat."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from tests.interop.clients import aio, confluent, kcat, python
from tests.interop.clients.all import available
from tests.interop.clients.kcat import Kcat
from tests.interop.clients.python import KafkaProducer
from tests.interop.raw import RawConnection, retrying
from tests.interop.transactions import librdkafka
from tests.kit.broker_process import BrokerProcess, topic_name
from tests.kit.waiting import DEADLINE_S, until

# In `make test-all`: `make test` has confluent-kafka and aiokafka.
pytestmark = pytest.mark.long

# Each writer commits these, and aborts others where it can.
KEPT = [b"a", b"b", b"e"]

Write = Callable[[str, str, str], None]
Read = Callable[[str, str, int], list[bytes | None]]


def write_with_confluent(bootstrap: str, topic: str, transactional_id: str) -> None:
    """Commit two values, abort two, commit one."""
    with librdkafka.producer(bootstrap, transactional_id) as client:
        librdkafka.commit(client, topic, b"a", b"b")
        librdkafka.abort(client, topic, b"c", b"d")
        librdkafka.commit(client, topic, b"e")


def write_with_aiokafka(bootstrap: str, topic: str, transactional_id: str) -> None:
    """Do the same."""

    async def write() -> None:
        options = {"bootstrap_servers": bootstrap, "transactional_id": transactional_id}
        async with aio.AIOKafkaProducer(**options) as client:
            for values in ((b"a", b"b"), (b"c", b"d"), (b"e",)):
                await client.begin_transaction()
                for value in values:
                    await client.send_and_wait(topic, value, partition=0)
                await (client.abort_transaction() if b"c" in values else client.commit_transaction())

    asyncio.run(asyncio.wait_for(write(), DEADLINE_S))


def write_with_kafka_python(bootstrap: str, topic: str, transactional_id: str) -> None:
    """Do the same."""
    with kafka_python_producer(bootstrap, transactional_id) as client:
        for values in ((b"a", b"b"), (b"c", b"d"), (b"e",)):
            client.begin_transaction()
            for value in values:
                client.send(topic, value, partition=0).get(timeout=DEADLINE_S)
            if b"c" in values:
                client.abort_transaction()
            else:
                client.commit_transaction()


def write_with_kcat(bootstrap: str, topic: str, transactional_id: str) -> None:
    """Commit the values in one transaction; kcat aborts only when it is interrupted."""
    available(Kcat())
    options = ("-X", f"transactional.id={transactional_id}")
    kcat.kcat(bootstrap, "-P", "-t", topic, "-p", "0", *options, standard_input=b"\n".join(KEPT) + b"\n")


@contextmanager
def kafka_python_producer(bootstrap: str, transactional_id: str) -> Iterator[Any]:
    """Give a producer that may begin a transaction."""
    client = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
    try:
        client.init_transactions()
        yield client
    finally:
        client.close(timeout=DEADLINE_S)


def read_with_confluent(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    """Read so many committed values."""
    with confluent.consumer(bootstrap, isolation_level="read_committed") as client:
        client.assign([TopicPartition(topic, 0, 0)])
        return [each.value for each in confluent.receive(client, count)]


def read_with_aiokafka(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    """Do the same."""

    async def read() -> list[bytes | None]:
        partition = aio.TopicPartition(topic, 0)
        async with aio.consumer(bootstrap, isolation_level="read_committed") as client:
            client.assign([partition])
            client.seek(partition, 0)
            return [each.value for each in await aio.receive(client, count)]

    return asyncio.run(asyncio.wait_for(read(), DEADLINE_S))


def read_with_kafka_python(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    """Do the same."""
    partition = python.TopicPartition(topic, 0)
    with python.consumer(bootstrap, isolation_level="read_committed") as client:
        client.assign([partition])
        client.seek(partition, 0)
        return [each.value for each in python.receive(client, count)]


def read_with_kcat(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    """Do the same."""
    available(Kcat())
    options = ("-X", "isolation.level=read_committed")
    said = kcat.kcat(bootstrap, "-C", "-q", "-t", topic, "-p", "0", "-o", "0", "-c", str(count), *options)
    return [line.encode() for line in said.splitlines()]


WRITERS: dict[str, Write] = {
    "confluent-kafka": write_with_confluent,
    "aiokafka": write_with_aiokafka,
    "kafka-python": write_with_kafka_python,
    "kcat": write_with_kcat,
}
READERS: dict[str, Read] = {
    "confluent-kafka": read_with_confluent,
    "aiokafka": read_with_aiokafka,
    "kafka-python": read_with_kafka_python,
    "kcat": read_with_kcat,
}


@pytest.fixture(scope="module")
def written(broker: BrokerProcess) -> str:
    """A topic in which all writers have had their turn."""
    topic = topic_name()
    with RawConnection(broker.bootstrap) as connection:
        retrying(lambda: connection.create_topic(topic))
    for name, write in WRITERS.items():
        write(broker.bootstrap, topic, f"{topic}-{name}")
    return topic


@pytest.mark.parametrize("reader", READERS)
def test_what_any_client_commits_every_client_reads(reader: str, broker: BrokerProcess, written: str) -> None:
    """And nothing of what they abort."""
    expected = KEPT * len(WRITERS)
    assert READERS[reader](broker.bootstrap, written, len(expected)) == expected


def test_kafka_python_commits_offsets_in_a_transaction(
    broker: BrokerProcess, topic: str, transactional_id: str, group: str
) -> None:
    """As a member of the group; they are there if the transaction is committed, and not if it is aborted."""
    partition = python.TopicPartition(topic, 0)
    options = {"auto_offset_reset": "earliest", "isolation_level": "read_committed", "enable_auto_commit": False}
    with (
        kafka_python_producer(broker.bootstrap, transactional_id) as client,
        closing(python.KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=group, **options)) as reader,
    ):
        # Without metadata of the topic it gets no partition when it joins, and asks again after five minutes.
        until(lambda: reader.partitions_for_topic(topic), "the topic")
        reader.subscribe([topic])
        until(lambda: reader.assignment() == {partition}, "the partition", meanwhile=lambda: reader.poll(1000))
        for offset in (3, 7, 5):
            client.begin_transaction()
            client.send(topic, b"with offset %d" % offset, partition=0)
            wanted = {partition: python.OffsetAndMetadata(offset, "", -1)}
            client.send_offsets_to_transaction(wanted, reader.group_metadata())
            if offset == 7:
                client.abort_transaction()
            else:
                client.commit_transaction()
        # kafka-python does not wait for the markers of a transaction when it asks for offsets.
        seen = set()
        until(lambda: 5 in seen, "the last offset", meanwhile=lambda: seen.add(reader.committed(partition)))
        assert seen <= {None, 3, 5}


def test_kafka_python_is_fenced_by_a_second_instance(broker: BrokerProcess, topic: str, transactional_id: str) -> None:
    """What the first has begun is aborted."""
    with (
        kafka_python_producer(broker.bootstrap, transactional_id) as first,
        kafka_python_producer(broker.bootstrap, transactional_id) as second,
    ):
        first.begin_transaction()
        with pytest.raises(python.errors.ProducerFencedError):
            first.send(topic, b"zombie", partition=0).get(timeout=DEADLINE_S)
        second.begin_transaction()
        second.send(topic, b"a", partition=0)
        second.commit_transaction()

    assert librdkafka.read(broker.bootstrap, topic, "read_uncommitted") == [b"a"]
