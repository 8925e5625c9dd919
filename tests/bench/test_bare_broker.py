"""The bare broker of `bench.limits` serves the loads that it is measured with."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from bench.support.bare_broker import BareBroker, Batch, Copies, Partition
from bench.support.rows import load, topic_for
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.kit.waiting import until

from ottla.protocol.record_batch_builder import RecordBatchBuilder
from ottla.protocol.records import batches

TIMEOUT_S = 60.0
BYTES_MAX = 1_000_000
# A consumer that polls more often learns of an end sooner.
POLL_S = 0.1


@contextmanager
def served(broker: BareBroker, listener: socket.socket) -> Iterator[str]:
    """Let a broker serve; return its address."""
    thread = threading.Thread(target=broker.serve)
    thread.start()
    host, port = listener.getsockname()
    try:
        yield f"{host}:{port}"
    finally:
        # It would wait for a connection for ever if the listener were only closed.
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(TIMEOUT_S)
        listener.close()


@dataclass
class BareTarget:
    """What loads are sent to."""

    bootstrap: str
    client_settings: dict[str, str] = field(default_factory=dict)
    broker_count: int = 1
    pids: list[int] = field(default_factory=list)


@pytest.fixture
def target() -> Iterator[BareTarget]:
    """A bare broker."""
    listener = socket.create_server(("127.0.0.1", 0))
    with served(BareBroker(listener), listener) as address:
        yield BareTarget(address)


def batch_of(*values: bytes) -> Batch:
    """A batch as a producer sends it."""
    builder = RecordBatchBuilder()
    for value in values:
        builder.append(0, None, value)
    return Batch.of(memoryview(builder.build()))


def records_of(copies: Copies) -> list[tuple[int, bytes | None]]:
    """Offsets and values, read as a consumer reads them."""
    data = b"".join(copies.parts)
    assert len(copies) == len(data)
    return [(record.offset, record.value) for batch in batches(data, strict=True) for record in batch.records()]


class Fetched:
    """The responses to Fetch requests: the end offset, and the records."""

    def __init__(self) -> None:
        self.responses: list[tuple[int, list[tuple[int, bytes | None]]]] = []

    def __call__(self, end_offset: int, copies: Copies) -> None:
        self.responses.append((end_offset, records_of(copies)))


def test_a_client_produces_and_consumes(target: BareTarget) -> None:
    """Every record comes out once, with its offset and the bytes of a record that went in."""
    producer = Producer({"bootstrap.servers": target.bootstrap})
    values = [b"first", b"second", b"third", b"fourth"]
    for value in values:
        producer.produce("topic", value)
        assert producer.flush(TIMEOUT_S) == 0
    consumer = Consumer({"bootstrap.servers": target.bootstrap, "group.id": "group", "enable.auto.commit": False})
    received: list[tuple[int | None, bytes | None]] = []

    def poll() -> None:
        if (message := consumer.poll(POLL_S)) is not None:
            assert message.error() is None
            received.append((message.offset(), message.value()))

    try:
        consumer.assign([TopicPartition("topic", 0, 0)])
        until(lambda: len(received) == len(values), "all records", meanwhile=poll)
    finally:
        consumer.close()

    assert [offset for offset, _ in received] == [0, 1, 2, 3]
    assert {value for _, value in received} <= set(values)


def test_the_loads_of_the_benches_run(target: BareTarget) -> None:
    """They say how many records went through."""
    with topic_for(target) as topic:
        produced = load(target, "produce", topic, 100, "--count", "20000")
        consumed = load(target, "consume", topic, 100, "--count", "20000")
        requests = load(target, "requests", topic, 100, "--count", "50")
    with topic_for(target) as topic:
        latency = load(target, "latency", topic, 100, "--count", "50")

    assert (produced["records"], requests["records"]) == (20_000, 50)
    assert consumed["records"] >= 20_000
    assert latency["p99_ms"] > 0


def test_copies_of_batches_fill_a_partition_to_its_end() -> None:
    """The largest come first, and smaller ones for what is left."""
    partition, fetched = Partition(), Fetched()
    partition.append(batch_of(b"one"))
    partition.append(batch_of(b"three", b"three", b"three"))
    partition.append(batch_of(b"two", b"two"))
    partition.fetch(0, BYTES_MAX, fetched)
    partition.fetch(5, BYTES_MAX, fetched)

    threes = [(offset, b"three") for offset in range(6)]
    assert fetched.responses == [(6, threes), (6, [(5, b"one")])]


def test_a_fetch_has_at_least_one_batch_and_no_more_bytes_than_asked_for() -> None:
    """A batch that is too large comes alone."""
    partition, fetched = Partition(), Fetched()
    for _ in range(3):
        partition.append(batch_of(b"value"))
    partition.fetch(0, 1, fetched)

    assert fetched.responses == [(3, [(0, b"value")])]


def test_a_waiting_fetch_gets_the_next_batch() -> None:
    """It is that batch itself, not a copy of an earlier one, and it is sent once."""
    partition, fetched = Partition(), Fetched()
    partition.append(batch_of(b"earlier"))
    assert partition.fetch(1, BYTES_MAX, fetched) is not None
    assert fetched.responses == []
    partition.append(batch_of(b"next"))
    partition.append(batch_of(b"later"))

    assert fetched.responses == [(2, [(1, b"next")])]


def test_a_fetch_that_waited_for_nothing_is_answered_once() -> None:
    """With no records, unless they have come meanwhile."""
    partition, fetched = Partition(), Fetched()
    waiting = partition.fetch(0, BYTES_MAX, fetched)
    assert waiting is not None
    partition.give_up(waiting)
    partition.give_up(waiting)
    partition.append(batch_of(b"late"))

    assert fetched.responses == [(0, [])]


def test_a_consumer_that_has_left_does_not_disturb_the_producer() -> None:
    """Its Fetch cannot be answered, and the records count."""

    def fail(end_offset: int, copies: Copies) -> None:
        raise BrokenPipeError

    partition = Partition()
    partition.fetch(0, BYTES_MAX, fail)
    partition.append(batch_of(b"value"))

    assert partition.end_offset == 1
