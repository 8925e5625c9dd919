"""Users and quotas through other people's tools, and clients that are beyond their quotas."""

from __future__ import annotations

import json
import select
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import confluent_kafka.admin
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.kit.broker_process import BrokerProcess, topic_name
from tests.kit.java_tools import RunTool
from tests.kit.waiting import until
from tests.kit.zookeeper import ZooKeeper, ZooKeeperServer

import ottla.sync
from ottla.sync import Admin

DEADLINE_S = 60.0
CONFIGS = "kafka.admin.ConfigCommand"
BATCH = bytes(12_000)
QUOTA = 10_000
RECORDS = 3

# Its stubs say little about the admin client.
confluent: Any = confluent_kafka.admin

SetQuota = Callable[..., str]


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[Admin]:
    """Our own admin client."""
    with Admin(bootstrap_servers=broker.bootstrap) as made:
        yield made


@pytest.fixture(scope="module")
def forgetful(zookeeper_server: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that looks back on two seconds and not on eleven, so that nobody waits for long."""
    folder, connect = tmp_path_factory.mktemp("forgetful"), ZooKeeper(zookeeper_server).connect
    with BrokerProcess(folder, connect, "quota.window.num=2") as made:
        yield made


@pytest.fixture
def limited(forgetful: BrokerProcess) -> Iterator[SetQuota]:
    """Return a function that limits a client id of its own, and returns it; the limits go in the end."""
    client_ids: list[dict[str, str | None]] = []

    def limit(**quotas: float) -> str:
        client_id = f"client-{uuid.uuid4().hex}"
        # Changes are heard of in their order: when the second one is in the log, the first one holds.
        for name in (client_id, f"{client_id}-heard"):
            client_ids.append({"client-id": name})
            own.alter_client_quotas([(client_ids[-1], quotas)])
        until(lambda: f"{client_id}-heard" in forgetful.output(), "the limits are heard of")
        return client_id

    with Admin(bootstrap_servers=forgetful.bootstrap) as own:
        yield limit
        keys = ("producer_byte_rate", "consumer_byte_rate", "request_percentage")
        own.alter_client_quotas([(entity, dict.fromkeys(keys)) for entity in client_ids])


class Throttled:
    """Notes how long the broker told a client to wait, as its statistics have it."""

    def __init__(self) -> None:
        self.longest_ms = 0

    def __call__(self, text: str) -> None:
        for broker in json.loads(text)["brokers"].values():
            self.longest_ms = max(self.longest_ms, broker["throttle"]["max"])


def options(broker: BrokerProcess, client_id: str, noted: Throttled) -> dict[str, Any]:
    """The options of a client that tells what it was told."""
    return {
        "bootstrap.servers": broker.bootstrap,
        "client.id": client_id,
        "statistics.interval.ms": 100,
        "stats_cb": noted,
    }


def test_confluent_sets_describes_and_deletes_scram_credentials(broker: BrokerProcess) -> None:
    """By librdkafka's own requests, one of which has a byte too many."""
    admin = confluent.AdminClient({"bootstrap.servers": broker.bootstrap})
    user = f"user-{uuid.uuid4().hex}"
    info = confluent.ScramCredentialInfo(confluent.ScramMechanism.SCRAM_SHA_256, 8192)

    def altered(*alterations: Any) -> None:
        for future in admin.alter_user_scram_credentials(list(alterations)).values():
            future.result(DEADLINE_S)

    altered(confluent.UserScramCredentialUpsertion(user, info, b"secret", b"some-salt"))
    described = admin.describe_user_scram_credentials([user])[user].result(DEADLINE_S)
    altered(confluent.UserScramCredentialDeletion(user, confluent.ScramMechanism.SCRAM_SHA_256))

    assert [(each.mechanism, each.iterations) for each in described.scram_credential_infos] == [
        (confluent.ScramMechanism.SCRAM_SHA_256, 8192)
    ]
    with pytest.raises(Exception, match=r"RESOURCE_NOT_FOUND|does not exist|no SCRAM credential"):
        admin.describe_user_scram_credentials([user])[user].result(DEADLINE_S)


def test_java_sets_and_shows_quotas_and_credentials(broker: BrokerProcess, run_tool: RunTool, admin: Admin) -> None:
    """With kafka-configs.sh; our own client sees the same."""
    user = f"user-{uuid.uuid4().hex}"
    where = ("--bootstrap-server", broker.bootstrap)
    entity = ("--entity-type", "users", "--entity-name", user)

    for settings in (
        "producer_byte_rate=123456,request_percentage=75.5",
        "SCRAM-SHA-512=[iterations=4096,password=secret]",
    ):
        run_tool(CONFIGS, *where, "--alter", *entity, "--add-config", settings)
    shown = run_tool(CONFIGS, *where, "--describe", *entity)
    (quota,) = admin.describe_client_quotas({"user": user})
    (credentials,) = admin.describe_user_scram_credentials([user])

    assert "producer_byte_rate=123456.0" in shown
    assert "SCRAM-SHA-512=iterations=4096" in shown
    assert dict(quota.quotas) == {"producer_byte_rate": 123456.0, "request_percentage": 75.5}
    assert [(each.mechanism, each.iterations) for each in credentials.credentials] == [("SCRAM-SHA-512", 4096)]


def test_a_producer_beyond_its_quota_is_told_and_made_to_wait(forgetful: BrokerProcess, limited: SetQuota) -> None:
    """And loses nothing. A batch is more than it may have in a second."""
    topic = topic_name()
    noted = Throttled()
    producer = Producer({**options(forgetful, limited(producer_byte_rate=QUOTA), noted), "linger.ms": 0, "acks": "1"})
    for _ in range(2):
        producer.produce(topic, BATCH)
        assert producer.flush(DEADLINE_S) == 0
    began = time.monotonic()
    producer.produce(topic, b"last")
    assert producer.flush(DEADLINE_S) == 0
    took_s = time.monotonic() - began
    until(lambda: noted.longest_ms > 0, "it is told to wait", meanwhile=lambda: producer.poll(0.1))

    assert took_s > 0.1


def test_a_muted_connection_does_not_hold_up_others(forgetful: BrokerProcess, limited: SetQuota) -> None:
    """One producer waits for minutes, another writes and a consumer reads what it has written."""
    noted = Throttled()
    topic = topic_name()
    slow = Producer({**options(forgetful, limited(producer_byte_rate=100), noted), "acks": "1"})
    for _ in range(2):
        slow.produce(topic, BATCH)
        slow.flush(0.5)
    waiting = threading.Event()
    slow.produce(topic, b"waits", on_delivery=lambda *_: waiting.set())
    slow.poll(0)

    quick = Producer({"bootstrap.servers": forgetful.bootstrap})
    quick.produce(topic, b"quick")
    assert quick.flush(DEADLINE_S) == 0
    consumer = Consumer({"bootstrap.servers": forgetful.bootstrap, "group.id": uuid.uuid4().hex})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])

        def value() -> object:
            message = consumer.poll(1.0)
            return message.value() if message is not None and message.error() is None else None

        until(lambda: value() == b"quick", "the quick one's record is read", pause_s=0)
    finally:
        consumer.close()

    slow.poll(0)
    assert not waiting.is_set()
    slow.purge()


def test_a_consumer_beyond_its_quota_reads_everything_in_the_end(forgetful: BrokerProcess, limited: SetQuota) -> None:
    """With empty answers in between, which it is told the reason of."""
    topic = topic_name()
    producer = Producer({"bootstrap.servers": forgetful.bootstrap})
    for _ in range(RECORDS):
        producer.produce(topic, BATCH)
        producer.flush(DEADLINE_S)
    noted = Throttled()
    consumer = Consumer(
        {
            **options(forgetful, limited(consumer_byte_rate=QUOTA), noted),
            "group.id": uuid.uuid4().hex,
            "fetch.message.max.bytes": len(BATCH),
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        read = 0

        def poll() -> None:
            nonlocal read
            message = consumer.poll(0.2)
            read += message is not None and message.error() is None

        until(lambda: read >= RECORDS and noted.longest_ms > 0, "all is read, and it was told to wait", meanwhile=poll)
    finally:
        consumer.close()

    assert read == RECORDS


def test_our_own_clients_wait_and_lose_nothing(forgetful: BrokerProcess, limited: SetQuota) -> None:
    """Beyond both quotas at once."""
    topic = topic_name()
    client: dict[str, Any] = {
        "bootstrap_servers": forgetful.bootstrap,
        "client_id": limited(producer_byte_rate=QUOTA, consumer_byte_rate=QUOTA),
    }
    with ottla.sync.Producer(**client) as producer:
        for number in range(RECORDS):
            producer.send(topic, BATCH, key=b"%d" % number, partition=0).result()
    with ottla.sync.Consumer(
        topic, auto_offset_reset="earliest", max_partition_fetch_bytes=len(BATCH), **client
    ) as reader:
        keys: list[bytes | None] = []

        def read() -> None:
            keys.extend(record.key for records in reader.getmany(timeout_ms=500).values() for record in records)

        until(lambda: len(keys) >= RECORDS, lambda: f"{RECORDS} records, but {keys}", meanwhile=read)

    assert keys == [b"%d" % number for number in range(RECORDS)]


def test_an_address_that_opens_too_many_connections_is_refused(forgetful: BrokerProcess) -> None:
    """Those beyond its quota are closed before anything is said on them; others are served."""
    host, _, port = forgetful.bootstrap.rpartition(":")
    with Admin(bootstrap_servers=forgetful.bootstrap) as admin, ExitStack() as ends:
        entity: dict[str, str | None] = {"ip": host}
        admin.alter_client_quotas([(entity, {"connection_creation_rate": 5.0})])
        ends.callback(admin.alter_client_quotas, [(entity, {"connection_creation_rate": None})])

        def closed() -> list[Any]:
            opened = [ends.enter_context(socket.create_connection((host, int(port)), DEADLINE_S)) for _ in range(20)]
            return select.select(opened, [], [], 5.0)[0]

        assert until(closed, "some are closed")[0].recv(1) == b""


def test_a_client_that_takes_too_much_time_is_told_to_wait(forgetful: BrokerProcess, limited: SetQuota) -> None:
    """No longer than a second at a time."""
    noted = Throttled()
    client_id = limited(request_percentage=0.0001)
    asking = Producer({**options(forgetful, client_id, noted), "topic.metadata.refresh.interval.ms": 10})

    def ask() -> None:
        asking.list_topics(timeout=DEADLINE_S)
        asking.poll(0.1)

    until(lambda: noted.longest_ms > 0, "it is told to wait", meanwhile=ask)
    assert noted.longest_ms <= 1000
