"""A cluster whose every listener is SASL_SSL: the brokers talk to each other as clients talk to them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.broker.security.certificates import Certificates
from tests.kit.broker_process import BrokerProcess, topic_name
from tests.kit.waiting import until
from tests.kit.zookeeper import ZooKeeper, ZooKeeperServer

DEADLINE_S = 90
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


class SecureCluster:
    """Three brokers, and clients that may talk to them."""

    def __init__(self, folder: Path, zookeeper: str) -> None:
        self.certificates = Certificates(folder)
        login = f'{MODULE} required username="broker" password="b-secret" user_broker="b-secret" user_alice="a-secret";'
        options = {
            **self.certificates.options(),
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": login,
            "offsets.topic.replication.factor": "3",
        }
        overrides = [f"{name}={value}" for name, value in options.items()]
        self.brokers = [
            BrokerProcess(folder / str(number), zookeeper, *overrides, broker_id=number, protocol="SASL_SSL")
            for number in (1, 2, 3)
        ]

    def client(self, **options: Any) -> dict[str, Any]:
        """The options of a client."""
        return {
            "bootstrap.servers": ",".join(broker.bootstrap for broker in self.brokers),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.certificates.truststore),
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "a-secret",
            **options,
        }


@pytest.fixture(scope="module")
def cluster(zookeeper_server: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    """One cluster for all tests of the file."""
    made = SecureCluster(tmp_path_factory.mktemp("secure"), ZooKeeper(zookeeper_server).connect)
    with ExitStack() as running:
        for broker in made.brokers:
            running.enter_context(broker)
        yield made


def await_in_sync(cluster: SecureCluster, topic: str, count: int) -> None:
    """Wait until that many replicas of a topic's only partition are in sync."""
    admin = AdminClient(cluster.client())

    def isr() -> list[int]:
        described = admin.list_topics(topic, timeout=DEADLINE_S).topics[topic]
        return described.partitions[0].isrs if described.partitions else []

    until(lambda: len(isr()) == count, lambda: f"{count} in sync, but {isr()}")


def produce(cluster: SecureCluster, topic: str, values: list[bytes]) -> None:
    """Have values acknowledged by all replicas in sync."""
    producer = Producer(cluster.client(acks="all", **{"delivery.timeout.ms": DEADLINE_S * 1000}))
    failed: list[KafkaError] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(DEADLINE_S) == 0
    assert failed == []


def consume(cluster: SecureCluster, topic: str, count: int) -> list[bytes]:
    """Read so many values from the begin, as a member of a group."""
    consumer = Consumer(cluster.client(**{"group.id": topic, "auto.offset.reset": "earliest"}))
    consumer.subscribe([topic])
    values: list[bytes] = []

    def read() -> None:
        values.extend(one.value() or b"" for one in consumer.consume(count, timeout=1) if not one.error())

    until(lambda: len(values) >= count, lambda: f"{count} records, but {len(values)}", meanwhile=read)
    consumer.close()
    return values


def test_records_are_replicated_and_survive_a_broker(cluster: SecureCluster) -> None:
    """Everything among brokers works with a login and TLS: the controller, fetchers, a death and a return."""
    topic = topic_name()
    admin = AdminClient(cluster.client())
    admin.create_topics([NewTopic(topic, 1, 3)])[topic].result(DEADLINE_S)
    await_in_sync(cluster, topic, 3)
    before = [b"before %d" % number for number in range(1000)]
    produce(cluster, topic, before)

    killed = cluster.brokers[0]
    killed.kill()
    await_in_sync(cluster, topic, 2)
    after = [b"after %d" % number for number in range(1000)]
    produce(cluster, topic, after)
    killed.start()
    await_in_sync(cluster, topic, 3)
    assert consume(cluster, topic, 2000) == before + after


def test_a_wrong_password_is_an_error_and_no_hang(cluster: SecureCluster) -> None:
    """And the secret does not show in any log."""
    errors: list[KafkaError] = []
    producer = Producer(cluster.client(**{"sasl.password": "planted-secret", "error_cb": errors.append}))
    until(
        lambda: any(error.code() == KafkaError._AUTHENTICATION for error in errors),
        lambda: f"an error of authentication, but {errors}",
        meanwhile=lambda: producer.poll(0.1),
    )
    said = "".join(broker.output() for broker in cluster.brokers)
    assert "authentication_failed" in said
    for secret in ("planted-secret", "a-secret", "b-secret"):
        assert secret not in said
