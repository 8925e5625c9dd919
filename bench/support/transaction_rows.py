"""What is measured of transactions: how many a producer commits in a second, how long a commit takes, what is read.

One producer, one transaction after the other, as a stream processor works. Its transactional id is another one each
time; what the coordinator has to do for the first one is not counted.
"""

from __future__ import annotations

import statistics
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.support.contender import Contender
from bench.support.rows import MB, Row, Target, Values, at_least, at_most, topic_for
from bench.support.usage import cpu_seconds
from bench.support.wire_producer import WireProducer
from confluent_kafka import Consumer, Producer
from confluent_kafka.cimpl import TopicPartition
from tests.broker.transactions.coordinating import A, coordinating
from tests.kit.kafka_process import kafka_command

from ottla.protocol.errors import ErrorCode

WAIT_SECONDS = 60.0
PARTITIONS = 3
VALUE = b"v" * 100
JAVA_COMMITS = Path(__file__).with_name("JavaCommits.java")
# Java compiles what it runs often; the class itself is compiled at each start.
JAVA_WARM_UP_SECONDS = 4.0
RECORD_BYTES = 1024
READ_RECORDS = 300_000
READ_RECORDS_IN_TRANSACTION = 100
READS = 7

_COMMIT_GOALS = {"tx/s": at_least(2.0), "p99 ms": at_most(1.0)}


def transaction_rows(seconds: float, brokers: int) -> list[Row]:
    """The rows for a cluster of so many brokers; each load goes on for so many seconds."""
    where = f", {brokers} broker{'s' if brokers > 1 else ''}"
    rows = [
        Row(f"{name}, commit, {client}{where}", commits(seconds, records), _COMMIT_GOALS)
        for client, commits in CLIENTS.items()
        for name, records in (("one record", 1), ("100 records", 100))
    ]
    rows += [
        Row(f"1 KB records, 100 ms each{where}", _stream(seconds), {"MB/s": at_least(1.0)}),
    ]
    if brokers == 1:
        rows += [
            Row(f"read committed, {share} % aborted{where}", _read(share), {"MB/s": at_least(1.0)})
            for share in (0, 1, 50)
        ]
    return rows


@contextmanager
def _producer(target: Target, **settings: object) -> Iterator[Producer]:
    producer = Producer(
        {
            "bootstrap.servers": target.bootstrap,
            "transactional.id": f"bench-{uuid.uuid4().hex}",
            "log_level": 0,
            **{name.replace("_", "."): value for name, value in settings.items()},
            **target.client_settings,
        }
    )
    producer.init_transactions(WAIT_SECONDS)
    yield producer
    producer.flush(WAIT_SECONDS)


def loading_seconds(ids: int) -> tuple[float, float]:
    """Return how long a new coordinator takes to load so many transactional ids, and how much of that on a processor.

    Each id has two transactions.
    """
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder, coordinating(Path(folder)) as led:
        led.lead(replicas=(1,))
        for number in range(ids):
            name = f"id-{number}"
            producer = led.init(transactional_id=name)
            for _ in range(2):
                led.coordinator.add_partitions(name, producer.producer_id, producer.producer_epoch, {A}, _ignore)
                led.coordinator.end(name, producer.producer_id, producer.producer_epoch, _ignore, commit=True)
                led.coordinator.marked(*led.decided.pop(), A)
        begun, used = time.perf_counter(), time.process_time()
        led.fail_over(epoch=1)
        return time.perf_counter() - begun, time.process_time() - used


def _ignore(_code: ErrorCode) -> None:
    """Nobody waits for it."""


def _librdkafka_commits(seconds: float, records: int) -> Callable[[Contender], Values]:
    def measure(contender: Contender) -> Values:
        # The producer is not to wait for more records than there are.
        with topic_for(contender, PARTITIONS) as topic, _producer(contender, linger_ms=0) as producer:

            def transaction() -> None:
                producer.begin_transaction()
                for number in range(records):
                    producer.produce(topic, VALUE, partition=number % PARTITIONS)
                producer.commit_transaction(WAIT_SECONDS)

            return _repeated(contender, seconds, transaction)

    return measure


def _wire_commits(seconds: float, records: int) -> Callable[[Contender], Values]:
    counts = [len(range(partition, records, PARTITIONS)) for partition in range(PARTITIONS)]

    def measure(contender: Contender) -> Values:
        with topic_for(contender, PARTITIONS) as topic, WireProducer(contender, topic, counts, VALUE) as producer:
            return _repeated(contender, seconds, producer.commit)

    return measure


def _repeated(contender: Contender, seconds: float, transaction: Callable[[], None]) -> Values:
    """Commit for so long, after a first time that does not count."""
    transaction()
    took: list[float] = []
    used = cpu_seconds(contender.pids)
    begun = time.perf_counter()
    while (at := time.perf_counter()) < begun + seconds:
        transaction()
        took.append(time.perf_counter() - at)
    used = cpu_seconds(contender.pids) - used
    return {**_summary(took), "CPU ms/tx": used * 1000 / len(took)}


def _summary(took: Sequence[float]) -> Values:
    """Return what the seconds that each transaction took say; one began where the one before it ended."""
    cuts = statistics.quantiles(took, n=100)
    return {"tx/s": len(took) / sum(took), "p50 ms": cuts[49] * 1000, "p99 ms": cuts[98] * 1000}


def _java_commits(seconds: float, records: int) -> Callable[[Contender], Values]:
    def measure(contender: Contender) -> Values:
        with topic_for(contender, PARTITIONS) as topic:
            arguments = (contender.bootstrap, f"bench-{uuid.uuid4().hex}", topic, PARTITIONS, records, len(VALUE))
            command = kafka_command(str(JAVA_COMMITS), *map(str, arguments), str(JAVA_WARM_UP_SECONDS), str(seconds))
            limit = WAIT_SECONDS + seconds
            done = subprocess.run(
                command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=limit
            )
        return _summary([int(line) / 1e9 for line in done.stdout.split()])

    return measure


CLIENTS = {"librdkafka": _librdkafka_commits, "Java": _java_commits, "light client": _wire_commits}


def _stream(seconds: float) -> Callable[[Contender], Values]:
    """Write as fast as the client can, and commit every tenth of a second."""

    def measure(contender: Contender) -> Values:
        value = b"v" * RECORD_BYTES
        records = commits = 0
        with topic_for(contender, PARTITIONS) as topic, _producer(contender) as producer:
            begun = time.perf_counter()
            while time.perf_counter() < begun + seconds:
                producer.begin_transaction()
                ends = time.perf_counter() + 0.1
                while time.perf_counter() < ends:
                    for number in range(100):
                        try:
                            producer.produce(topic, value, partition=number % PARTITIONS)
                            records += 1
                        except BufferError:
                            producer.poll(0.01)
                producer.commit_transaction(WAIT_SECONDS)
                commits += 1
            took = time.perf_counter() - begun
        return {"MB/s": records * RECORD_BYTES / took / MB, "tx/s": commits / took}

    return measure


def _read(aborted_percent: int) -> Callable[[Contender], Values]:
    """Read a topic of short transactions, a share of which was aborted."""

    def measure(contender: Contender) -> Values:
        value = b"v" * RECORD_BYTES
        with topic_for(contender) as topic:
            wanted = 0
            with _producer(contender) as producer:
                for number in range(READ_RECORDS // READ_RECORDS_IN_TRANSACTION):
                    is_aborted = number * aborted_percent % 100 < aborted_percent and aborted_percent > 0
                    producer.begin_transaction()
                    for _ in range(READ_RECORDS_IN_TRANSACTION):
                        producer.produce(topic, value, partition=0)
                    if is_aborted:
                        producer.flush(WAIT_SECONDS)
                        producer.abort_transaction(WAIT_SECONDS)
                    else:
                        producer.commit_transaction(WAIT_SECONDS)
                        wanted += READ_RECORDS_IN_TRANSACTION
            # Reading takes less than a second: something else may happen to one of them.
            return {"MB/s": statistics.median(_consumed(contender, topic, wanted) for _ in range(READS))}

    return measure


def _consumed(target: Target, topic: str, wanted: int) -> float:
    """Read so many records from the beginning, and return how many MB a second that were."""
    consumer = Consumer(
        {
            "bootstrap.servers": target.bootstrap,
            "group.id": topic,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            # It asks for nothing for a second when a broker is faster than the program that takes the records.
            "fetch.queue.backoff.ms": 1,
            "log_level": 0,
            **target.client_settings,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    begun, count = 0.0, 0
    while count < wanted:
        messages = consumer.consume(min(10_000, wanted - count), WAIT_SECONDS)
        assert messages, f"{count} of {wanted} records after {WAIT_SECONDS:g} s"
        begun = begun or time.perf_counter()
        count += len(messages)
    took = time.perf_counter() - begun
    consumer.close()
    return count * RECORD_BYTES / took / MB
