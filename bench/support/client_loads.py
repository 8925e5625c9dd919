"""The same work for each Python client: produce records to a partition, and read a partition from its beginning.

Each load opens a client, takes the time of the work alone, and closes it. Asyncio clients run on uvloop. Readers add up
the lengths of all values, so that nobody gains by not making them; their time begins with the first record, which is
not counted.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, TypeAlias

import confluent_kafka
import uvloop
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition

import ottla.sync
from ottla.client.consumer.consumer import Consumer
from ottla.client.producer.producer import Producer
from ottla.client.producer.settings import ProducerOptions
from ottla.client.types import TopicPartition

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer
    from kafka import TopicPartition as PythonPartition

# What those that hand out as much as they are asked for are asked for.
RECORDS_MAX: Final = 10_000
_WAIT_MS: Final = 1000
_CONFLUENT_POLL_EVERY: Final = 1000


@dataclass(slots=True)
class Work:
    """So many records of one size, in a topic of one partition."""

    bootstrap: str
    topic: str
    records: int
    value_bytes: int
    # For producers; None is what each does by itself.
    batch_bytes: int | None = None


@dataclass(slots=True)
class Stopwatch:
    """Real time, and this process's time on a processor, since it was made."""

    wall_begun: float = field(default_factory=time.perf_counter)
    cpu_begun: float = field(default_factory=time.process_time)

    def rates(self, records: int) -> Rates:
        """Return the records for each second of both."""
        wall, cpu = time.perf_counter() - self.wall_begun, time.process_time() - self.cpu_begun
        return Rates(records / wall, records / cpu)


@dataclass(frozen=True, slots=True)
class Rates:
    """Records for each second, and for each second that the client was on a processor."""

    wall: float
    cpu: float


Load: TypeAlias = Callable[[Work], Rates]


def on_uvloop(load: Callable[[Work], Coroutine[Any, Any, Rates]]) -> Load:
    """Have a load that is a coroutine run on a loop of its own."""
    return lambda work: uvloop.run(load(work))


async def produce_ottla(work: Work) -> Rates:
    """Produce with our client."""
    value = bytes(work.value_bytes)
    options: ProducerOptions = {"bootstrap_servers": work.bootstrap}
    if work.batch_bytes is not None:
        options["max_batch_size"] = work.batch_bytes
    async with Producer(**options) as producer:
        await producer.send_and_wait(work.topic, value, partition=0)
        watch = Stopwatch()
        for _ in range(work.records):
            last = await producer.send(work.topic, value, partition=0)
        await producer.flush()
        await last
        return watch.rates(work.records)


async def produce_aiokafka(work: Work) -> Rates:
    """Produce with aiokafka; idempotent, as ours is."""
    value = bytes(work.value_bytes)
    options = {} if work.batch_bytes is None else {"max_batch_size": work.batch_bytes}
    async with AIOKafkaProducer(
        bootstrap_servers=work.bootstrap, acks="all", enable_idempotence=True, **options
    ) as producer:
        await producer.send_and_wait(work.topic, value, partition=0)
        watch = Stopwatch()
        for _ in range(work.records):
            last = await producer.send(work.topic, value, partition=0)
        await producer.flush()
        await last
        return watch.rates(work.records)


def produce_kafka_python(work: Work) -> Rates:
    """Produce with kafka-python; idempotent, as ours is."""
    value = bytes(work.value_bytes)
    options = {} if work.batch_bytes is None else {"batch_size": work.batch_bytes}
    producer = KafkaProducer(bootstrap_servers=work.bootstrap, acks="all", enable_idempotence=True, **options)
    try:
        producer.send(work.topic, value, partition=0).get(60)
        watch = Stopwatch()
        for _ in range(work.records):
            last = producer.send(work.topic, value, partition=0)
        producer.flush()
        last.get(60)
        return watch.rates(work.records)
    finally:
        producer.close()


def produce_confluent(work: Work) -> Rates:
    """Produce with confluent-kafka; idempotent, as ours is."""
    value = bytes(work.value_bytes)
    options: dict[str, Any] = {} if work.batch_bytes is None else {"batch.size": work.batch_bytes}
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": work.bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "queue.buffering.max.messages": 2 * work.records,
            **options,
        }
    )
    producer.produce(work.topic, value, partition=0)
    assert producer.flush(60) == 0
    watch = Stopwatch()
    for number in range(work.records):
        producer.produce(work.topic, value, partition=0)
        if number % _CONFLUENT_POLL_EVERY == 0:
            producer.poll(0)
    assert producer.flush(60) == 0
    return watch.rates(work.records)


async def consume_ottla_records(work: Work) -> Rates:
    """Read in batches of record objects with our client."""
    async with Consumer(bootstrap_servers=work.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(work.topic, 0)])
        await consumer.getone()
        watch = Stopwatch()
        count = size = 0
        while count < work.records:
            for records in (await consumer.getmany(timeout_ms=_WAIT_MS)).values():
                count += len(records)
                for record in records:
                    size += len(record.value or b"")
        return _checked(watch, work, size)


async def consume_ottla_columns(work: Work) -> Rates:
    """Read as columns with our client: all values in an Arrow array, whose bytes are counted."""
    async with Consumer(bootstrap_servers=work.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(work.topic, 0)])
        await consumer.getone()
        watch = Stopwatch()
        count = size = 0
        while count < work.records:
            for columns in (await consumer.getcolumns(timeout_ms=_WAIT_MS)).values():
                count += len(columns)
                _, values = columns.value_buffers()
                size += len(values)
        return _checked(watch, work, size)


async def consume_ottla_lists(work: Work) -> Rates:
    """Read as columns with our client, and have the values as a list of bytes."""
    async with Consumer(bootstrap_servers=work.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(work.topic, 0)])
        await consumer.getone()
        watch = Stopwatch()
        count = size = 0
        while count < work.records:
            for columns in (await consumer.getcolumns(timeout_ms=_WAIT_MS)).values():
                count += len(columns)
                for value in columns.values:
                    size += len(value or b"")
        return _checked(watch, work, size)


async def consume_ottla_single(work: Work) -> Rates:
    """Read record by record with our client."""
    async with Consumer(bootstrap_servers=work.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(work.topic, 0)])
        await consumer.getone()
        watch = Stopwatch()
        size = 0
        for _ in range(work.records):
            size += len((await consumer.getone()).value or b"")
        return _checked(watch, work, size)


def consume_ottla_sync(work: Work) -> Rates:
    """Read record by record with the synchronous twin of our client."""
    with ottla.sync.Consumer(bootstrap_servers=work.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(work.topic, 0)])
        next(consumer)
        watch = Stopwatch()
        size = 0
        for record in islice(consumer, work.records):
            size += len(record.value or b"")
        return _checked(watch, work, size)


async def consume_aiokafka_records(work: Work) -> Rates:
    """Read in batches with aiokafka."""
    async with AIOKafkaConsumer(bootstrap_servers=work.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([AioPartition(work.topic, 0)])
        await consumer.getone()
        watch = Stopwatch()
        count = size = 0
        while count < work.records:
            for records in (await consumer.getmany(timeout_ms=_WAIT_MS)).values():
                count += len(records)
                for record in records:
                    size += len(record.value or b"")
        return _checked(watch, work, size)


async def consume_aiokafka_single(work: Work) -> Rates:
    """Read record by record with aiokafka."""
    async with AIOKafkaConsumer(bootstrap_servers=work.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([AioPartition(work.topic, 0)])
        await consumer.getone()
        watch = Stopwatch()
        size = 0
        for _ in range(work.records):
            size += len((await consumer.getone()).value or b"")
        return _checked(watch, work, size)


def consume_kafka_python(work: Work) -> Rates:
    """Read in batches with kafka-python."""
    consumer = KafkaConsumer(bootstrap_servers=work.bootstrap, auto_offset_reset="earliest")
    try:
        consumer.assign([PythonPartition(work.topic, 0)])
        while not consumer.poll(timeout_ms=_WAIT_MS, max_records=1):
            pass
        watch = Stopwatch()
        count = size = 0
        while count < work.records:
            wanted = min(RECORDS_MAX, work.records - count)
            for records in consumer.poll(timeout_ms=_WAIT_MS, max_records=wanted).values():
                count += len(records)
                for record in records:
                    size += len(record.value or b"")
        return _checked(watch, work, size)
    finally:
        consumer.close()


def consume_confluent_batches(work: Work) -> Rates:
    """Read in batches with confluent-kafka."""
    return _consume_confluent(
        work, lambda consumer, wanted: consumer.consume(min(wanted, RECORDS_MAX), _WAIT_MS / 1000)
    )


def consume_confluent_single(work: Work) -> Rates:
    """Read record by record with confluent-kafka."""
    return _consume_confluent(work, lambda consumer, _: [consumer.poll(_WAIT_MS / 1000)])


def _consume_confluent(work: Work, ask: Callable[[Any, int], list[Any]]) -> Rates:
    consumer: Any = confluent_kafka.Consumer(
        {
            "bootstrap.servers": work.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            # By default it fetches nothing for a second when it has 100,000 records in store.
            "fetch.queue.backoff.ms": 1,
        }
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition(work.topic, 0, 0)])
        while consumer.poll(_WAIT_MS / 1000) is None:
            pass
        watch = Stopwatch()
        count = size = 0
        while count < work.records:
            for message in ask(consumer, work.records - count):
                if message is not None:
                    assert message.error() is None, message.error()
                    count += 1
                    size += len(message.value() or b"")
        return _checked(watch, work, size)
    finally:
        consumer.close()


def _checked(watch: Stopwatch, work: Work, size: int) -> Rates:
    count = size // work.value_bytes
    rates = watch.rates(count)
    assert size % work.value_bytes == 0, size
    assert count >= work.records, count
    return rates
