"""Users and quotas through other people's tools, and clients that are beyond their quotas."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka.admin
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.broker_process import BrokerProcess
from tests.interop.conftest import CreateTopic
from tests.interop.java_tools import RunTool

from ottla.sync import Admin

DEADLINE_S = 60.0
CONFIGS = "kafka.admin.ConfigCommand"
BATCH = bytes(12_000)
QUOTA = 2000

# Its stubs say little about the admin client.
confluent: Any = confluent_kafka.admin

SetQuota = Callable[..., str]


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[Admin]:
    """Our own admin client."""
    with Admin(bootstrap_servers=broker.bootstrap) as made:
        yield made


@pytest.fixture
def limited(broker: BrokerProcess, admin: Admin) -> Iterator[SetQuota]:
    """Return a function that limits a client id of its own, and returns it; the limits go in the end."""
    client_ids: list[dict[str, str | None]] = []

    def limit(**quotas: float) -> str:
        client_id = f"client-{uuid.uuid4().hex}"
        # Changes are heard of in their order: when the second one is in the log, the first one holds.
        for name in (client_id, f"{client_id}-heard"):
            client_ids.append({"client-id": name})
            admin.alter_client_quotas([(client_ids[-1], quotas)])
        deadline = time.monotonic() + DEADLINE_S
        while f"{client_id}-heard" not in broker.output():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return client_id

    yield limit
    keys = ("producer_byte_rate", "consumer_byte_rate", "request_percentage")
    admin.alter_client_quotas([(entity, dict.fromkeys(keys)) for entity in client_ids])


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


def test_a_producer_beyond_its_quota_is_told_and_made_to_wait(
    broker: BrokerProcess, topic: str, limited: SetQuota
) -> None:
    """And loses nothing. Two batches are twelve seconds of its quota, and it may have eleven at once."""
    noted = Throttled()
    producer = Producer({**options(broker, limited(producer_byte_rate=QUOTA), noted), "linger.ms": 0, "acks": "1"})
    for _ in range(2):
        producer.produce(topic, BATCH)
        assert producer.flush(DEADLINE_S) == 0
    began = time.monotonic()
    producer.produce(topic, b"last")
    assert producer.flush(DEADLINE_S) == 0
    took_s = time.monotonic() - began
    deadline = time.monotonic() + DEADLINE_S
    while not noted.longest_ms and time.monotonic() < deadline:
        producer.poll(0.1)

    assert noted.longest_ms > 0
    assert took_s > 0.5


def test_a_muted_connection_does_not_hold_up_others(broker: BrokerProcess, topic: str, limited: SetQuota) -> None:
    """One producer waits for minutes, another writes and a consumer reads what it has written."""
    noted = Throttled()
    slow = Producer({**options(broker, limited(producer_byte_rate=100), noted), "acks": "1"})
    for _ in range(2):
        slow.produce(topic, BATCH)
        slow.flush(0.5)
    waiting = threading.Event()
    slow.produce(topic, b"waits", on_delivery=lambda *_: waiting.set())
    slow.poll(0)

    quick = Producer({"bootstrap.servers": broker.bootstrap})
    quick.produce(topic, b"quick")
    assert quick.flush(DEADLINE_S) == 0
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": uuid.uuid4().hex})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        values = []
        deadline = time.monotonic() + DEADLINE_S
        while b"quick" not in values and time.monotonic() < deadline:
            message = consumer.poll(1.0)
            values += [message.value()] if message is not None and message.error() is None else []
    finally:
        consumer.close()

    assert b"quick" in values
    slow.poll(0)
    assert not waiting.is_set()
    slow.purge()


def test_a_consumer_beyond_its_quota_reads_everything_in_the_end(
    broker: BrokerProcess, create_topic: CreateTopic, limited: SetQuota
) -> None:
    """With empty answers in between, which it is told the reason of."""
    topic = create_topic()
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for _ in range(2):
        producer.produce(topic, BATCH)
        producer.flush(DEADLINE_S)
    noted = Throttled()
    consumer = Consumer(
        {
            **options(broker, limited(consumer_byte_rate=QUOTA), noted),
            "group.id": uuid.uuid4().hex,
            "fetch.message.max.bytes": len(BATCH),
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        read = 0
        deadline = time.monotonic() + DEADLINE_S
        while (read < 2 or not noted.longest_ms) and time.monotonic() < deadline:
            message = consumer.poll(0.2)
            read += message is not None and message.error() is None
    finally:
        consumer.close()

    assert read == 2
    assert noted.longest_ms > 0


def test_a_client_that_takes_too_much_time_is_told_to_wait(broker: BrokerProcess, limited: SetQuota) -> None:
    """No longer than a second at a time."""
    noted = Throttled()
    client_id = limited(request_percentage=0.0001)
    asking = Producer({**options(broker, client_id, noted), "topic.metadata.refresh.interval.ms": 10})
    deadline = time.monotonic() + DEADLINE_S
    while not noted.longest_ms and time.monotonic() < deadline:
        asking.list_topics(timeout=DEADLINE_S)
        asking.poll(0.1)

    assert 0 < noted.longest_ms <= 1000
