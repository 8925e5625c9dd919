"""Transactions with Java's own clients and tools, on our broker as on Kafka's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from tests.interop.conftest import CreateTopic
from tests.interop.raw import stored_batches
from tests.interop.transactions import librdkafka
from tests.interop.transactions.foreign_clients import ForeignClient, ForeignClients, thrown
from tests.kit.apache_kafka import LIBS, LIBS_4
from tests.kit.broker_process import BrokerProcess
from tests.kit.java_tools import TOOL_SECONDS_MAX, RunTool
from tests.kit.kafka_process import kafka_command, kafka_or_skip
from tests.kit.waiting import until

# In `make test-all`: `make test` has confluent-kafka and aiokafka.
pytestmark = pytest.mark.long

PROGRAM = Path(__file__).with_name("JavaClients.java")
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
STEPS = ["commit", *(pytest.param(step, marks=pytest.mark.long) for step in ("abort", "send", "offset"))]
SHORT_MS = 300
COPIED = 60


@pytest.fixture(
    scope="module", params=[LIBS, pytest.param(LIBS_4, marks=pytest.mark.long)], ids=["clients-3.9", "clients-4.1"]
)
def java(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForeignClients]:
    """The process of the clients, of either line of versions."""
    kafka_or_skip(request.param)
    log = tmp_path_factory.mktemp("java") / "clients.log"
    clients = ForeignClients(log, kafka_command(str(PROGRAM), libs=request.param))
    yield clients
    clients.close()


@pytest.fixture
def producer(java: ForeignClients, broker: BrokerProcess, transactional_id: str) -> Iterator[ForeignClient]:
    """A producer that may begin its first transaction."""
    with new_producer(java, broker, transactional_id) as client:
        client.do("init")
        yield client


def new_producer(
    java: ForeignClients, broker: BrokerProcess, transactional_id: str, **options: object
) -> AbstractContextManager[ForeignClient]:
    """Give a producer that has not called `initTransactions` yet."""
    return java.client("producer", broker.bootstrap, transactional_id=transactional_id, **options)


def new_consumer(
    java: ForeignClients, broker: BrokerProcess, isolation: str = "read_committed", **options: object
) -> AbstractContextManager[ForeignClient]:
    """Give a consumer that commits nothing by itself."""
    given = {"auto_offset_reset": "earliest", "enable_auto_commit": "false", "isolation_level": isolation, **options}
    return java.client("consumer", broker.bootstrap, **given)


def test_committed_records_are_read_and_aborted_ones_only_by_who_wants_them(
    java: ForeignClients, run_tool: RunTool, broker: BrokerProcess, topic: str, producer: ForeignClient
) -> None:
    """With the consumer, and with kafka-console-consumer and its option --isolation-level."""
    for outcome, values in (("commit", "ab"), ("abort", "cd"), ("commit", "e")):
        producer.do("begin")
        for value in values:
            producer.do("send", topic, 0, value)
        producer.do(outcome)
    librdkafka.wait_for_markers(broker.bootstrap, topic)

    for isolation, expected in (("read_committed", "abe"), ("read_uncommitted", "abcde")):
        with new_consumer(java, broker, isolation) as consumer:
            consumer.do("assign", topic, 0)
            assert "".join(consumer.receive(len(expected))) == expected
            assert consumer.number("position", topic, 0) == consumer.number("end", topic, 0) == 8
        said = run_tool(
            CONSOLE_CONSUMER,
            *("--bootstrap-server", broker.bootstrap, "--topic", topic, "--partition", "0", "--offset", "earliest"),
            *("--max-messages", str(len(expected)), "--timeout-ms", str(TOOL_SECONDS_MAX * 1000)),
            *("--isolation-level", isolation),
        )
        assert "".join(said.split()) == expected


def test_an_open_transaction_holds_readers_back(
    java: ForeignClients, broker: BrokerProcess, topic: str, producer: ForeignClient
) -> None:
    """They are not behind as long as it is open."""
    producer.do("begin")
    producer.do("send", topic, 0, "a")
    producer.do("commit")
    producer.do("begin")
    producer.do("send", topic, 0, "b")
    with new_consumer(java, broker) as consumer:
        consumer.do("assign", topic, 0)
        assert consumer.receive(1) == ["a"]
        until(lambda: consumer.number("lag", topic, 0) == 0, "no lag", meanwhile=lambda: consumer.do("poll", 50))
        assert (consumer.number("position", topic, 0), consumer.number("end", topic, 0)) == (2, 2)
        producer.do("commit")
        assert consumer.receive(1) == ["b"]


@pytest.mark.parametrize("protocol", ["classic", pytest.param("consumer", marks=pytest.mark.long)])
def test_records_are_copied_exactly_once(
    protocol: str,
    java: ForeignClients,
    broker: BrokerProcess,
    create_topic: CreateTopic,
    transactional_id: str,
    group: str,
) -> None:
    """Consume and produce in transactions, of which some are aborted, and some are given up by a crash."""
    if protocol == "consumer" and type(broker) is not BrokerProcess:
        pytest.skip("brokers of Kafka have no groups of the new protocol with ZooKeeper")
    source, target = create_topic(), create_topic()
    with librdkafka.producer(broker.bootstrap, f"{transactional_id}-source") as client:
        librdkafka.commit(client, source, *(b"%d" % number for number in range(COPIED)))
    outcomes = iter(["commit", "abort", "commit", "crash", "abort", "crash"])
    options: dict[str, Any] = {"group_id": group, "group_protocol": protocol, "max_poll_records": 10}
    is_done = False
    while not is_done:
        # One that is closed amid a transaction leaves it open; the next one fences it.
        with new_producer(java, broker, transactional_id) as writer:
            writer.do("init")
            with new_consumer(java, broker, **options) as reader:
                reader.do("subscribe", source)
                is_done = copy(reader, writer, source, target, outcomes)

    with new_consumer(java, broker, group_id=group) as reader:
        assert reader.number("committed", source, 0) == COPIED
    expected = [b"copy of %d" % number for number in range(COPIED)]
    assert librdkafka.read(broker.bootstrap, target) == expected
    assert len(librdkafka.read(broker.bootstrap, target, "read_uncommitted")) > len(expected)


def copy(reader: ForeignClient, writer: ForeignClient, source: str, target: str, outcomes: Iterator[str]) -> bool:
    """Copy what each poll returns; return whether that is done, not given up."""
    position = 0
    while position < COPIED:
        values = until(lambda: reader.do("poll", 200), "records")
        position = int(values[-1]) + 1
        writer.do("begin")
        for value in values:
            writer.do("send", target, 0, f"copy of {value}")
        reader.do("remember", "now")
        writer.do("offset", source, 0, position, "now")
        outcome = next(outcomes, "commit")
        if outcome == "crash":
            return False
        writer.do(outcome)
        if outcome == "abort":
            # Whoever comes next begins where the group is.
            return False
    return True


def test_a_member_of_an_earlier_generation_cannot_commit(
    java: ForeignClients, broker: BrokerProcess, topic: str, group: str, producer: ForeignClient
) -> None:
    """Its transaction must be aborted; with what the group knows of it now, the next one is committed."""
    options: dict[str, Any] = {"group_id": group, "heartbeat_interval_ms": 300}
    with new_consumer(java, broker, **options) as first:
        join(first, topic)
        first.do("remember", "earlier")
    with new_consumer(java, broker, **options) as second:
        join(second, topic)
        second.do("remember", "now")
        producer.do("begin")
        with thrown("CommitFailedException"):
            producer.do("offset", topic, 0, 1, "earlier")
        producer.do("abort")
        producer.do("begin")
        producer.do("offset", topic, 0, 2, "now")
        producer.do("commit")
        assert second.number("committed", topic, 0) == 2


def join(consumer: ForeignClient, topic: str) -> None:
    """Become the member that has the topic."""
    consumer.do("subscribe", topic)
    until(lambda: consumer.do("assignment") == [f"{topic}-0"], "all", meanwhile=lambda: consumer.do("poll", 100))


@pytest.mark.parametrize("step", STEPS)
def test_a_second_instance_fences_the_first(
    step: str, java: ForeignClients, broker: BrokerProcess, topic: str, transactional_id: str, producer: ForeignClient
) -> None:
    """What the first has begun is aborted before the second begins, whatever the first does next."""
    producer.do("begin")
    producer.do("send", topic, 0, "replaced")
    with new_producer(java, broker, transactional_id) as second:
        second.do("init")
        assert librdkafka.end(broker.bootstrap, topic) == 2
        check_fenced(step, java, broker, topic, producer)
        second.do("begin")
        second.do("send", topic, 0, "a")
        second.do("commit")

    assert librdkafka.read(broker.bootstrap, topic) == [b"a"]
    assert librdkafka.read(broker.bootstrap, topic, "read_uncommitted") == [b"replaced", b"a"]


@pytest.mark.parametrize("step", STEPS)
def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(
    step: str, java: ForeignClients, broker: BrokerProcess, topic: str, transactional_id: str
) -> None:
    """Readers go on without it."""
    with new_producer(java, broker, transactional_id, transaction_timeout_ms=SHORT_MS) as producer:
        producer.do("init")
        producer.do("begin")
        producer.do("send", topic, 0, "too late")
        librdkafka.wait_for_end(broker.bootstrap, topic, 2)
        check_fenced(step, java, broker, topic, producer)

    assert librdkafka.read(broker.bootstrap, topic, "read_uncommitted") == [b"too late"]


@pytest.mark.parametrize("step", STEPS)
def test_an_administrator_fences_a_producer(
    step: str, java: ForeignClients, broker: BrokerProcess, topic: str, transactional_id: str, producer: ForeignClient
) -> None:
    """With `Admin.fenceProducers`: its transaction is aborted."""
    producer.do("begin")
    producer.do("send", topic, 0, "a")
    with java.client("admin", broker.bootstrap) as admin:
        assert admin.do("state", transactional_id) == ["Ongoing"]
        admin.do("fence", transactional_id)
        assert admin.do("state", transactional_id) == ["Empty"]
    assert librdkafka.end(broker.bootstrap, topic) == 2
    check_fenced(step, java, broker, topic, producer)

    assert librdkafka.read(broker.bootstrap, topic) == []


def check_fenced(step: str, java: ForeignClients, broker: BrokerProcess, topic: str, producer: ForeignClient) -> None:
    """Expect that a step of a producer with an open transaction fails, and that it can do nothing more."""
    if step == "send":
        # Leaders say that the epoch is over; the coordinator, which the client asks next, that it is fenced.
        with thrown("InvalidProducerEpochException"):
            producer.do("send", topic, 0, "zombie")
        with thrown("ProducerFencedException"):
            producer.do("abort")
    elif step == "offset":
        with new_consumer(java, broker, group_id=f"group-of-{topic}") as consumer:
            consumer.do("remember", "now")
        with thrown("ProducerFencedException"):
            producer.do("offset", topic, 0, 1, "now")
    else:
        with thrown("ProducerFencedException"):
            producer.do(step)
    with thrown("ProducerFencedException"):
        producer.do("begin")


def test_an_administrator_ends_a_transaction_in_a_partition(
    java: ForeignClients, broker: BrokerProcess, topic: str, producer: ForeignClient
) -> None:
    """With `Admin.abortTransaction`, which finds it with `describeProducers`: readers go on."""
    producer.do("begin")
    producer.do("send", topic, 0, "a")
    assert librdkafka.end(broker.bootstrap, topic) == 0
    with java.client("admin", broker.bootstrap) as admin:
        admin.do("abort-open", topic, 0)

    assert librdkafka.read(broker.bootstrap, topic) == []
    assert librdkafka.read(broker.bootstrap, topic, "read_uncommitted") == [b"a"]


def test_what_is_not_allowed_is_refused(java: ForeignClients, broker: BrokerProcess, topic: str) -> None:
    """Calls out of order by the client itself, too long a timeout by the broker."""
    with new_producer(java, broker, f"{topic}-out-of-order") as producer:
        with thrown("IllegalStateException"):
            producer.do("begin")
        producer.do("init")
        with thrown("IllegalStateException"):
            producer.do("send", topic, 0, "outside")
        with thrown("IllegalStateException"):
            producer.do("commit")
    with (
        new_producer(java, broker, f"{topic}-too-long", transaction_timeout_ms=900_001) as producer,
        thrown("KafkaException", "transaction timeout is larger than the maximum"),
    ):
        producer.do("init")
    with java.client("admin", broker.bootstrap) as admin, thrown("TransactionalIdNotFoundException"):
        admin.do("state", f"{topic}-unknown")


def test_a_record_that_times_out_spoils_the_transaction_but_not_the_producer(
    java: ForeignClients, broker: BrokerProcess, topic: str, transactional_id: str
) -> None:
    """Nobody knows whether it was written. After the abort the producer goes on with another epoch (KIP-360)."""
    options = {"request_timeout_ms": 500, "delivery_timeout_ms": 1000, "linger_ms": 0}
    with new_producer(java, broker, transactional_id, **options) as producer:
        producer.do("init")
        producer.do("begin")
        producer.do("send", topic, 0, "a")
        broker.pause()
        try:
            with thrown("TimeoutException"):
                producer.do("send", topic, 0, "b")
        finally:
            broker.resume()
        with thrown("KafkaException"):
            producer.do("commit")
        producer.do("abort")
        producer.do("begin")
        producer.do("send", topic, 0, "c")
        producer.do("commit")

    assert librdkafka.read(broker.bootstrap, topic) == [b"c"]


def test_a_transaction_outlives_a_restart_of_the_broker(
    broker: BrokerProcess, topic: str, producer: ForeignClient, java: ForeignClients, group: str
) -> None:
    """The coordinator, the partition and the group know it from their logs."""
    producer.do("begin")
    producer.do("send", topic, 0, "before")
    with new_consumer(java, broker, group_id=group) as consumer:
        consumer.do("remember", "now")
        producer.do("offset", topic, 0, 1, "now")
        broker.stop()
        broker.start()
        librdkafka.wait_for_end(broker.bootstrap, topic, 0)
        producer.do("send", topic, 0, "after")
        producer.do("offset", topic, 0, 2, "now")
        producer.do("commit")
        assert consumer.number("committed", topic, 0) == 2

    assert librdkafka.read(broker.bootstrap, topic) == [b"before", b"after"]


def test_the_performance_tool_produces_in_transactions(
    run_tool: RunTool, broker: BrokerProcess, topic: str, transactional_id: str
) -> None:
    """kafka-producer-perf-test with --transactional-id and --transaction-duration-ms."""
    said = run_tool(
        PERFORMANCE,
        *("--topic", topic, "--num-records", "2000", "--record-size", "100", "--throughput", "4000"),
        *("--transactional-id", transactional_id, "--transaction-duration-ms", "50"),
        *("--producer-props", f"bootstrap.servers={broker.bootstrap}"),
    )

    assert re.search(r"2000 records sent", said)
    assert len(librdkafka.read(broker.bootstrap, topic)) == 2000
    batches = stored_batches(broker.bootstrap, topic)
    assert all(batch.is_transactional for batch in batches)
    assert sum(batch.is_control for batch in batches) > 1
