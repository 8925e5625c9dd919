"""A cluster that asks who comes and what they may do: rights hold on every broker, with ZooKeeper and without."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import confluent_kafka.admin
import pytest
from confluent_kafka import KafkaError, Producer
from tests.kit.broker_process import BrokerProcess, topic_name
from tests.kit.waiting import until
from tests.kit.zookeeper import ZooKeeperServer

DEADLINE_S = 90
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
USERS = {"broker": "b-secret", "admin": "x-secret", "alice": "a-secret", "bob": "o-secret"}

# The stubs of confluent-kafka say little about its admin client.
api: Any = confluent_kafka.admin


class Cluster:
    """Two brokers on a ZooKeeper of their own."""

    def __init__(self, folder: Path) -> None:
        self.zookeeper = ZooKeeperServer(folder / "zookeeper")
        users = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
        options = {
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:broker;User:admin",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "ottla.sasl.plain.allow.without.tls": "true",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
                f'{MODULE} required username="broker" password="{USERS["broker"]}" {users};'
            ),
        }
        overrides = [f"{name}={value}" for name, value in options.items()]
        self.brokers = [
            BrokerProcess(
                folder / str(number), self.zookeeper.connect, *overrides, broker_id=number, protocol="SASL_PLAINTEXT"
            )
            for number in (1, 2)
        ]

    def client(self, user: str, **options: Any) -> dict[str, Any]:
        """The options of a user's client."""
        return {
            "bootstrap.servers": ",".join(broker.bootstrap for broker in self.brokers),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": USERS[user],
            **options,
        }

    def produced(self, user: str, topic: str) -> set[int]:
        """Produce to both partitions, which have different leaders, and all their replicas; return the error codes.

        Each with a client of its own: when librdkafka is refused one partition, it drops the others of the topic. What
        waits there gets DESTROY in place of the refusal if the thread for that broker has not begun; with Apache Kafka
        3.9.1, too.
        """
        return {self._produced(user, topic, partition) for partition in (0, 1)}

    def _produced(self, user: str, topic: str, partition: int) -> int:
        codes: list[int] = []
        with Producer(self.client(user, acks="all", **{"delivery.timeout.ms": DEADLINE_S * 1000})) as producer:
            producer.produce(
                topic,
                b"v",
                partition=partition,
                on_delivery=lambda error, _: codes.append(error.code() if error else 0),
            )
            assert producer.flush(DEADLINE_S) == 0
        (code,) = codes
        return code


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One cluster for all tests of the file."""
    made = Cluster(tmp_path_factory.mktemp("access"))
    with ExitStack() as running:
        running.enter_context(made.zookeeper)
        for broker in made.brokers:
            running.enter_context(broker)
        yield made


def acl(topic: str, user: str, operation: Any, permission: Any) -> Any:
    """A rule about a topic."""
    literal = api.ResourcePatternType.LITERAL
    return api.AclBinding(api.ResourceType.TOPIC, topic, literal, f"User:{user}", "*", operation, permission)


def test_rights_hold_on_every_broker_and_outlive_zookeeper(cluster: Cluster) -> None:
    """A user gets in everywhere as soon as the rule is heard of; without ZooKeeper those who were in stay in alone."""
    topic = topic_name()
    admin = api.AdminClient(cluster.client("admin"))
    admin.create_topics([api.NewTopic(topic, 2, 2)])[topic].result(DEADLINE_S)
    refused = {KafkaError.TOPIC_AUTHORIZATION_FAILED}
    assert cluster.produced("alice", topic) == cluster.produced("bob", topic) == refused
    assert cluster.produced("admin", topic) == {0}

    rules = [
        acl(topic, "alice", api.AclOperation.WRITE, api.AclPermissionType.ALLOW),
        acl(topic, "bob", api.AclOperation.ALL, api.AclPermissionType.ALLOW),
        acl(topic, "bob", api.AclOperation.WRITE, api.AclPermissionType.DENY),
    ]
    for future in admin.create_acls(rules).values():
        future.result(DEADLINE_S)
    until(lambda: cluster.produced("alice", topic) == {0}, "the rules are heard of")
    assert cluster.produced("bob", topic) == refused

    cluster.zookeeper.kill()
    assert cluster.produced("alice", topic) == {0}
    assert cluster.produced("bob", topic) == refused
    said = "".join(broker.output() for broker in cluster.brokers)
    assert "access_denied" in said
    assert not any(password in said for password in USERS.values())
