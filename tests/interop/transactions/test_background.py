"""What brokers do to transactions by themselves, as confluent-kafka sees it: on our broker as on Kafka's."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from tests.interop.transactions.conftest import new_broker
from tests.interop.transactions.librdkafka import abort, api, commit, producer, read, read_now, refused, send
from tests.kit.broker_process import BrokerProcess, topic_name
from tests.kit.kafka_process import KafkaProcess, kafka_or_skip
from tests.kit.waiting import DEADLINE_S, until
from tests.kit.zookeeper import ZooKeeper, ZooKeeperServer

from ottla.sync import Admin

KEYS = 5
# A broker of Kafka that has just started may not know its controller, and librdkafka waits for it for a minute.
ASK_S = 3
LEADER, FOLLOWER = 1, 2

pytestmark = pytest.mark.long
either_kind = pytest.mark.parametrize("kind", ["ottla", "kafka-3.9"])


def create(bootstrap: str, topic: str, replicas: list[int], **configs: str) -> None:
    """Create a topic with one partition, when the brokers are there."""
    options = {name.replace("_", "."): value for name, value in configs.items()}
    wanted = api.NewTopic(topic, 1, replica_assignment=[replicas], config=options)
    with api.AdminClient({"bootstrap.servers": bootstrap}) as admin:

        def is_created() -> bool:
            admin.create_topics([wanted], request_timeout=ASK_S)[topic].result(DEADLINE_S)
            return True

        until(is_created, f"{topic} is created", not_yet=confluent_kafka.KafkaException)


@either_kind
def test_a_forgotten_id_costs_one_transaction(
    kind: str, tmp_path: Path, zookeeper_server: ZooKeeperServer, transactional_id: str
) -> None:
    """An id that nobody has used for a while is removed; its producer goes on with a new producer id."""
    options = (
        "transactional.id.expiration.ms=3000",
        "transaction.remove.expired.transaction.cleanup.interval.ms=100",
        "transaction.state.log.num.partitions=1",
    )
    topic = topic_name()
    with new_broker(kind, tmp_path, zookeeper_server, *options) as broker:
        create(broker.bootstrap, topic, [broker.broker_id])
        with producer(broker.bootstrap, transactional_id) as client:
            commit(client, topic, b"a")
            until(lambda: not is_listed(broker, transactional_id), "the id is forgotten")
            client.begin_transaction()
            client.produce(topic, b"b", partition=0)
            with refused(KafkaError.INVALID_PRODUCER_ID_MAPPING, requires_abort=True):
                client.commit_transaction(DEADLINE_S)
            client.abort_transaction(DEADLINE_S)
            commit(client, topic, b"c")

        assert read(broker.bootstrap, topic) == [b"a", b"c"]


@either_kind
def test_the_cleaner_leaves_what_is_committed(
    kind: str, tmp_path: Path, zookeeper_server: ZooKeeperServer, transactional_id: str
) -> None:
    """Aborted records go, whatever their keys; the last committed one of each key stays; so does what is open."""
    options = ("log.cleaner.backoff.ms=50", "transaction.state.log.num.partitions=1")
    topic = topic_name()
    rng = random.Random(7)
    with new_broker(kind, tmp_path, zookeeper_server, *options) as broker:
        create(
            broker.bootstrap,
            topic,
            [broker.broker_id],
            cleanup_policy="compact",
            segment_bytes="2000",
            min_cleanable_dirty_ratio="0.0",
            max_compaction_lag_ms="100",
            delete_retention_ms="100",
        )
        kept: dict[bytes, bytes] = {}
        with (
            producer(broker.bootstrap, f"{transactional_id}-1") as one,
            producer(broker.bootstrap, f"{transactional_id}-2") as other,
        ):
            for number in range(60):
                write(one, topic, number, is_kept=rng.random() < 0.5, kept=kept, rng=rng)
                write(other, topic, number, is_kept=rng.random() < 0.5, kept=kept, rng=rng)
            one.begin_transaction()
            send(one, topic, b"open")
            # What comes behind an open transaction is not cleaned.
            write(other, topic, 60, is_kept=True, kept=kept, rng=rng)
            until(lambda: not aborted_values(broker, topic), lambda: f"cleaned, not {aborted_values(broker, topic)}")
            one.abort_transaction(DEADLINE_S)
            for number in range(61, 75):
                write(other, topic, number, is_kept=True, kept=kept, rng=rng)

        found: dict[bytes, bytes] = {}
        for key, value in read_now(broker.bootstrap, topic, "read_committed", 0):
            found[key] = value
        assert found == kept


def write(
    client: Producer, topic: str, number: int, *, is_kept: bool, kept: dict[bytes, bytes], rng: random.Random
) -> None:
    """Commit or abort a transaction with a few keys."""
    client.begin_transaction()
    outcome = b"committed" if is_kept else b"aborted"
    for _ in range(3):
        key, value = b"key %d" % rng.randrange(KEYS), b"%b %d %d" % (outcome, number, rng.randrange(1_000_000))
        client.produce(topic, value, key, partition=0)
        if is_kept:
            kept[key] = value
    assert client.flush(DEADLINE_S) == 0
    if is_kept:
        client.commit_transaction(DEADLINE_S)
    else:
        client.abort_transaction(DEADLINE_S)


def aborted_values(broker: BrokerProcess, topic: str) -> list[bytes]:
    """Return the values of aborted transactions that are still in the log, up to the last segments."""
    records = read_now(broker.bootstrap, topic, "read_uncommitted", 0)
    return [value for _, value in records[:-40] if value.startswith(b"aborted")]


def is_listed(broker: BrokerProcess, transactional_id: str) -> bool:
    """Whether the coordinator still knows an id."""
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        return transactional_id in [each.transactional_id for each in admin.list_transactions()]


@pytest.fixture(params=[BrokerProcess, KafkaProcess], ids=["ottla", "kafka-3.9"])
def racks(
    request: pytest.FixtureRequest, tmp_path: Path, zookeeper_server: ZooKeeperServer
) -> Iterator[dict[int, BrokerProcess]]:
    """Two brokers in racks of their own, of which consumers read in theirs."""
    if request.param is KafkaProcess:
        kafka_or_skip()
    connect = ZooKeeper(zookeeper_server).connect
    selector = "replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector"
    brokers: dict[int, BrokerProcess] = {}
    with ExitStack() as running:
        for number in (LEADER, FOLLOWER):
            options = (f"broker.rack=rack-{number}", selector, "transaction.state.log.num.partitions=1")
            process = request.param(tmp_path / str(number), connect, *options, broker_id=number)
            brokers[number] = running.enter_context(process)
        yield brokers


def test_a_follower_shows_readers_what_is_committed(racks: dict[int, BrokerProcess], transactional_id: str) -> None:
    """It knows from its copy where transactions begin and end."""
    bootstrap, topic = racks[LEADER].bootstrap, topic_name()
    create(bootstrap, topic, [LEADER, FOLLOWER])
    asked: set[int] = set()
    values: list[bytes] = []

    def note(statistics: str) -> None:
        partitions = json.loads(statistics)["topics"].get(topic, {}).get("partitions", {})
        asked.add(partitions.get("0", {}).get("broker", -1))

    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "not-used",
        "client.rack": f"rack-{FOLLOWER}",
        "isolation.level": "read_committed",
        "statistics.interval.ms": 50,
        "stats_cb": note,
    }
    with producer(bootstrap, transactional_id) as client, closing(Consumer(settings)) as reader:
        reader.assign([TopicPartition(topic, 0, 0)])

        def poll() -> None:
            message = reader.poll(0.1)
            if message is not None:
                assert message.error() is None
                values.append(message.value() or b"")

        for number in range(5):
            commit(client, topic, b"kept %d" % number)
            abort(client, topic, b"aborted %d" % number)
        kept = [b"kept %d" % number for number in range(5)]
        until(lambda: values == kept, lambda: f"not yet: {values}", meanwhile=poll)
        until(lambda: FOLLOWER in asked, "the reader asks the follower", meanwhile=poll)
        client.begin_transaction()
        send(client, topic, b"last")
        asked.clear()
        until(lambda: FOLLOWER in asked, "it goes on asking the follower", meanwhile=poll)
        assert values == kept
        client.commit_transaction(DEADLINE_S)
        until(lambda: values == [*kept, b"last"], lambda: f"not yet: {values}", meanwhile=poll)
