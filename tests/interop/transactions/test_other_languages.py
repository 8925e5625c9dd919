"""Transactions with kafkajs and franz-go, on our broker as on Kafka's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import TopicPartition
from tests.faults.cluster import Cluster
from tests.interop.clients import confluent
from tests.interop.conftest import CreateTopic
from tests.interop.transactions import librdkafka
from tests.interop.transactions.foreign_clients import ForeignClient, ForeignClients, ForeignError
from tests.kit.apache_kafka import UnavailableError, skip_or_fail
from tests.kit.broker_process import BrokerProcess, topic_name
from tests.kit.foreign_programs import ForeignProgram, go_program, node_program
from tests.kit.waiting import DEADLINE_S, until

from ottla.broker.coordination.placement import CONSUMER_OFFSETS, TRANSACTION_STATE

# The clients are fetched, and franz-go is compiled, the first time.
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

FOLDER = Path(__file__).parent
SHORT_MS = 300
COPIED = 60
# Each of them leads one partition.
REPLICAS = ((1, 2, 3), (2, 3, 1), (3, 1, 2))
# What a fenced producer is told, by older versions of requests and by newer ones.
FENCED = {"INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED"}


@pytest.fixture(scope="module", params=["kafkajs", "franz_go"])
def program(request: pytest.FixtureRequest) -> ForeignProgram:
    """The program of each client in turn."""
    folder = FOLDER / request.param
    try:
        return node_program(folder / "clients.js") if request.param == "kafkajs" else go_program(folder)
    except UnavailableError as reason:
        skip_or_fail(reason)


@pytest.fixture(scope="module")
def clients(program: ForeignProgram, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForeignClients]:
    """The process of the clients."""
    with closing(ForeignClients(tmp_path_factory.mktemp("clients") / "clients.log", *program)) as made:
        yield made


@pytest.fixture
def producer(clients: ForeignClients, broker: BrokerProcess, transactional_id: str) -> Iterator[ForeignClient]:
    """A producer that may begin its first transaction."""
    with clients.client("producer", broker.bootstrap, transactional_id=transactional_id) as client:
        client.do("init")
        yield client


def new_consumer(clients: ForeignClients, bootstrap: str, isolation: str) -> AbstractContextManager[ForeignClient]:
    """Give a consumer that commits nothing."""
    return clients.client("consumer", bootstrap, isolation_level=isolation, group_id=f"group-{uuid4().hex}")


def test_committed_records_are_read_and_aborted_ones_only_by_who_wants_them(
    clients: ForeignClients, broker: BrokerProcess, topic: str, producer: ForeignClient
) -> None:
    """Whole transactions, in the order in which they were written."""
    for outcome, values in (("commit", "ab"), ("abort", "cd"), ("commit", "e"), ("abort", "f"), ("commit", "g")):
        producer.do("begin")
        for value in values:
            producer.do("send", topic, 0, value)
        producer.do(outcome)
    librdkafka.wait_for_markers(broker.bootstrap, topic)

    for isolation, expected in (("read_committed", "abeg"), ("read_uncommitted", "abcdefg")):
        with new_consumer(clients, broker.bootstrap, isolation) as consumer:
            consumer.do("subscribe", topic)
            assert "".join(consumer.receive(len(expected))) == expected
    assert librdkafka.read(broker.bootstrap, topic) == [b"a", b"b", b"e", b"g"]


def test_transactions_of_several_producers_lie_mixed_in_a_partition(
    clients: ForeignClients, broker: BrokerProcess, topic: str, transactional_id: str, producer: ForeignClient
) -> None:
    """A reader tells their records apart by the producer, whichever of them ends first."""
    with clients.client("producer", broker.bootstrap, transactional_id=f"{transactional_id}-2") as second:
        second.do("init")
        producer.do("begin")
        second.do("begin")
        for value in "abc":
            producer.do("send", topic, 0, value)
            second.do("send", topic, 0, value.upper())
        second.do("abort")
        second.do("begin")
        second.do("send", topic, 0, "D")
        producer.do("commit")
        second.do("commit")
    librdkafka.wait_for_markers(broker.bootstrap, topic)

    with new_consumer(clients, broker.bootstrap, "read_committed") as consumer:
        consumer.do("subscribe", topic)
        assert "".join(consumer.receive(4)) == "abcD"


def test_an_open_transaction_holds_readers_back(
    clients: ForeignClients, broker: BrokerProcess, topic: str, producer: ForeignClient
) -> None:
    """A reader has what comes before it, and goes on when it is committed."""
    producer.do("begin")
    producer.do("send", topic, 0, "a")
    producer.do("commit")
    producer.do("begin")
    producer.do("send", topic, 0, "b")
    with new_consumer(clients, broker.bootstrap, "read_committed") as consumer:
        consumer.do("subscribe", topic)
        assert consumer.receive(1) == ["a"]
        assert consumer.do("poll", SHORT_MS) == []
        producer.do("commit")
        assert consumer.receive(1) == ["b"]


def test_records_are_copied_exactly_once(
    clients: ForeignClients, broker: BrokerProcess, create_topic: CreateTopic, transactional_id: str, group: str
) -> None:
    """Consume and produce in transactions, of which some are aborted, and some are given up by a crash."""
    source, target = create_topic(), create_topic()
    with librdkafka.producer(broker.bootstrap, f"{transactional_id}-source") as writer:
        librdkafka.commit(writer, source, *(b"%d" % number for number in range(COPIED)))
    outcomes = iter(["commit", "abort", "commit", "crash", "abort", "crash"])
    options = {"transactional_id": transactional_id, "group_id": group, "source": source, "target": target}
    is_done = False
    while not is_done:
        # One that is closed amid a transaction leaves it open; the next one fences it.
        with clients.client("copier", broker.bootstrap, **options) as copier:
            is_done = copy(copier, outcomes)

    assert committed(broker.bootstrap, group, source) == COPIED
    expected = [b"copy of %d" % number for number in range(COPIED)]
    assert librdkafka.read(broker.bootstrap, target) == expected
    assert len(librdkafka.read(broker.bootstrap, target, "read_uncommitted")) > len(expected)


def copy(copier: ForeignClient, outcomes: Iterator[str]) -> bool:
    """Copy until all is copied or a transaction is not committed: whoever comes next begins where the group is.

    Return whether all is copied.
    """
    outcome, values = "commit", ["0"]
    while outcome == "commit" and int(values[-1]) < COPIED - 1:
        outcome = next(outcomes, "commit")
        values = until(partial(copier.do, "copy", outcome), "records")
    return outcome == "commit"


def committed(bootstrap: str, group: str, topic: str) -> int:
    """Return the offset that a group has committed, when it is certain."""
    with confluent.consumer(bootstrap, group_id=group, isolation_level="read_committed") as client:
        (found,) = client.committed([TopicPartition(topic, 0)], DEADLINE_S)
        offset: int = found.offset
    return offset


@pytest.mark.parametrize("step", ["commit", "abort", "send"])
def test_a_second_instance_fences_the_first(
    step: str,
    clients: ForeignClients,
    broker: BrokerProcess,
    topic: str,
    transactional_id: str,
    producer: ForeignClient,
) -> None:
    """What the first has begun is aborted before the second begins, whatever the first does next."""
    producer.do("begin")
    producer.do("send", topic, 0, "replaced")
    with clients.client("producer", broker.bootstrap, transactional_id=transactional_id) as second:
        second.do("init")
        assert librdkafka.end(broker.bootstrap, topic) == 2
        check_fenced(step, producer, topic)
        second.do("begin")
        second.do("send", topic, 0, "a")
        second.do("commit")

    assert librdkafka.read(broker.bootstrap, topic) == [b"a"]
    assert librdkafka.read(broker.bootstrap, topic, "read_uncommitted") == [b"replaced", b"a"]


@pytest.mark.parametrize("step", ["commit", "send"])
def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(
    step: str, clients: ForeignClients, broker: BrokerProcess, topic: str, transactional_id: str
) -> None:
    """Readers go on without it."""
    options = {"transactional_id": transactional_id, "transaction_timeout_ms": SHORT_MS}
    with clients.client("producer", broker.bootstrap, **options) as producer:
        producer.do("init")
        producer.do("begin")
        producer.do("send", topic, 0, "too late")
        librdkafka.wait_for_end(broker.bootstrap, topic, 2)
        check_fenced(step, producer, topic)

    assert librdkafka.read(broker.bootstrap, topic) == []


def check_fenced(step: str, producer: ForeignClient, topic: str) -> None:
    """Expect that a step of a producer is refused, since another one has its transactional id."""
    with pytest.raises(ForeignError) as raised:
        producer.do(step, *((topic, 0, "zombie") if step == "send" else ()))
    assert raised.value.name in FENCED, raised.value


def test_a_transaction_outlives_a_restart_of_the_broker(
    clients: ForeignClients, broker: BrokerProcess, topic: str, producer: ForeignClient
) -> None:
    """The coordinator and the partition know it from their logs."""
    producer.do("begin")
    producer.do("send", topic, 0, "before")
    broker.stop()
    broker.start()
    librdkafka.wait_for_end(broker.bootstrap, topic, 0)
    producer.do("send", topic, 0, "after")
    producer.do("commit")

    assert librdkafka.read(broker.bootstrap, topic) == [b"before", b"after"]


def test_transactions_go_on_when_their_coordinators_are_killed(
    program: ForeignProgram, cluster: Cluster, transactional_id: str, group: str, tmp_path: Path
) -> None:
    """Three brokers, of which one after the other is killed: records are copied exactly once."""
    source, target = topic_name(), topic_name()
    for topic in (source, target):
        cluster.create_topic(topic, REPLICAS[:1])
    with librdkafka.producer(cluster.bootstrap, f"{transactional_id}-source") as writer:
        librdkafka.commit(writer, source, *(b"%d" % number for number in range(COPIED)))
    options = {"transactional_id": transactional_id, "group_id": group, "source": source, "target": target}

    @contextmanager
    def new_copier() -> Iterator[ForeignClient]:
        # In a process of its own: a consumer of kafkajs that is stopped while it starts again goes on in secret.
        with (
            closing(ForeignClients(tmp_path / "clients.log", *program)) as process,
            process.client("copier", cluster.bootstrap, **options) as copier,
        ):
            yield copier

    for killed in (TRANSACTION_STATE, CONSUMER_OFFSETS, target):
        with new_copier() as copier:
            copied = until(partial(copier.do, "copy", "commit"), "records")
            assert committed(cluster.bootstrap, group, source) == int(copied[-1]) + 1
            leader = cluster.state.partition(killed, 0).leader
            cluster.brokers[leader].kill()
            copy_in_spite_of_faults(copier)
        cluster.restore()
        for each in (source, target, TRANSACTION_STATE):
            cluster.wait_for_full_isr(each, REPLICAS[:1])
    while committed(cluster.bootstrap, group, source) < COPIED:
        with new_copier() as copier:
            copy_in_spite_of_faults(copier)

    assert librdkafka.read(cluster.bootstrap, target) == [b"copy of %d" % number for number in range(COPIED)]


def copy_in_spite_of_faults(copier: ForeignClient) -> None:
    """Copy some records, or give up, as clients may while brokers change; the next one begins where the group is."""
    with suppress(ForeignError):
        until(partial(copier.do, "copy", "commit"), "records")
