"""Interceptors of producers and consumers: what they see, what they change, and that they break nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from itertools import islice
from typing import Any

import pytest
from tests.client.consumer.consuming import create_topic, group_name, member, produce, read
from tests.client.producer.scripted_producing import Brokers, producing
from tests.client.test_logging import lines
from tests.kit.broker_process import BrokerProcess

from ottla import ConsumerInterceptor, ProducerInterceptor, ProducerRecord, sync
from ottla.client.consumer.interceptors import RecordsByPartition
from ottla.client.errors import KafkaError, MessageSizeTooLargeError
from ottla.client.types import OffsetAndMetadata, RecordMetadata, TopicPartition
from ottla.protocol.errors import ErrorCode


class Tracing(ProducerInterceptor):
    """Adds a header, and remembers what became of records."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.offsets: list[int] = []
        self.errors: list[BaseException] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record._replace(headers=[*(record.headers or ()), ("trace", self.name.encode())])

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: BaseException | None) -> None:
        assert (metadata is None) != (error is None)
        if metadata is not None:
            self.offsets.append(metadata.offset)
        if error is not None:
            self.errors.append(error)


class Broken(ProducerInterceptor, ConsumerInterceptor):
    """Raises in every method."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        raise ValueError("on_send")

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: BaseException | None) -> None:
        raise ValueError("on_acknowledgement")

    def on_consume(self, records: RecordsByPartition) -> RecordsByPartition:
        raise ValueError("on_consume")

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        raise ValueError("on_commit")


class Even(ConsumerInterceptor):
    """Leaves out records with odd offsets, and remembers commits."""

    def __init__(self) -> None:
        self.committed: list[Mapping[TopicPartition, OffsetAndMetadata]] = []

    def on_consume(self, records: RecordsByPartition) -> RecordsByPartition:
        return {partition: [record for record in some if record.offset % 2 == 0] for partition, some in records.items()}

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.committed.append(offsets)


async def test_a_producer_sends_what_its_interceptors_return(caplog: pytest.LogCaptureFixture) -> None:
    """One after the other; one that raises is logged, and the record goes on as it was."""
    caplog.set_level(logging.INFO, "ottla")
    first, second = Tracing("first"), Tracing("second")
    brokers = Brokers()
    async with producing(brokers, interceptors=[first, Broken(), second]) as producer:
        assert (await producer.send_and_wait("t", b"value", partition=0)).offset == 0

    (record,) = brokers.batches[0][1].records()
    assert (record.value, list(record.headers)) == (b"value", [("trace", b"first"), ("trace", b"second")])
    assert first.offsets == second.offsets == [0]
    assert lines(caplog) == ["on_send of Broken failed", "on_acknowledgement of Broken failed"]


async def test_interceptors_learn_of_errors() -> None:
    """Those that a broker has sent, and those of records that are never sent."""
    tracing = Tracing("t")
    brokers = Brokers()
    brokers.judge = lambda partition, batch: ErrorCode.INVALID_RECORD
    async with producing(brokers, interceptors=[tracing], max_request_size=2000) as producer:
        with pytest.raises(KafkaError):
            await producer.send_and_wait("t", b"value", partition=0)
        with pytest.raises(MessageSizeTooLargeError):
            await producer.send("t", bytes(3000), partition=0)
        with pytest.raises(TypeError):
            await producer.send("t", "text")

    assert [type(error).__name__ for error in tracing.errors] == [
        "InvalidRecordError",
        "MessageSizeTooLargeError",
        "TypeError",
    ]


async def test_a_consumer_hands_out_what_its_interceptors_return(
    broker: BrokerProcess, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """One by one and in lists; records that are left out count as read."""
    await create_topic(broker.bootstrap, topic)
    await produce(broker.bootstrap, topic, [b"%d" % number for number in range(20)])
    even = Even()
    options: dict[str, Any] = {"interceptors": [Broken(), even], "enable_auto_commit": False}
    async with member(broker.bootstrap, group_name(), topic, **options) as consumer:
        assert [(await consumer.getone()).value for _ in range(3)] == [b"0", b"2", b"4"]
        assert await read(consumer, 7) == [b"6", b"8", b"10", b"12", b"14", b"16", b"18"]
        await consumer.commit()
        assert await consumer.committed(TopicPartition(topic, 0)) in (19, 20)

    assert [set(offsets) for offsets in even.committed] == [{TopicPartition(topic, 0)}]
    assert {"on_consume of Broken failed", "on_commit of Broken failed"} <= set(lines(caplog))


async def test_a_call_goes_on_when_all_records_were_left_out(broker: BrokerProcess, topic: str) -> None:
    """It does not wait for records that have arrived already."""
    await create_topic(broker.bootstrap, topic)
    await produce(broker.bootstrap, topic, [b"%d" % number for number in range(4)])

    class Last(ConsumerInterceptor):
        def on_consume(self, records: RecordsByPartition) -> RecordsByPartition:
            return {one: [record for record in some if record.offset == 3] for one, some in records.items()}

    async with member(broker.bootstrap, group_name(), topic, interceptors=[Last()]) as consumer:
        assert (await asyncio.wait_for(consumer.getone(), 60)).value == b"3"


def test_synchronous_clients_have_interceptors_too(broker: BrokerProcess, topic: str) -> None:
    """Also where records are taken by another thread than the loop's."""
    tracing = Tracing("sync")
    with sync.Producer(bootstrap_servers=broker.bootstrap, interceptors=[tracing]) as producer:
        for number in range(10):
            producer.send_and_wait(topic, b"%d" % number, partition=0)
    with sync.Consumer(
        topic, bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", interceptors=[Even()]
    ) as consumer:
        records = list(islice(consumer, 5))

    assert tracing.offsets == list(range(10))
    assert [record.value for record in records] == [b"0", b"2", b"4", b"6", b"8"]
    assert {record.headers for record in records} == {(("trace", b"sync"),)}
