"""A cluster of real brokers as `ottla up` starts it: it survives a broker, with all that was acknowledged."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.kit.waiting import until

from ottla.client.local_cluster.cluster_dir import ClusterDir
from ottla.client.local_cluster.local_cluster import LocalCluster
from ottla.client.local_cluster.plan import ClusterOptions
from ottla.client.local_cluster.status import ProcessState

DEADLINE_S = 60
PARTITIONS = 3
# So that a broker that was killed is missed early.
SESSION_TIMEOUT_MS = 2000


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three brokers with the defaults of `ottla up`, but for ports and time."""
    cluster = LocalCluster(ClusterDir(tmp_path / "cluster"), stop_timeout_s=5)
    cluster.start(
        ClusterOptions(
            base_port=0,
            http_base_port=0,
            zookeeper_port=0,
            overrides=(f"zookeeper.session.timeout.ms={SESSION_TIMEOUT_MS}",),
        )
    )
    try:
        yield cluster
    finally:
        cluster.stop()


def replicas(admin: AdminClient, topic: str) -> list[tuple[int, int, int]]:
    """Leader, number of replicas and number of those in sync, by partition."""
    found = admin.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions
    return [(each.leader, len(each.replicas), len(each.isrs)) for _, each in sorted(found.items())]


def place(message: Message) -> tuple[int, int]:
    """Partition and offset of a record."""
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return partition, offset


def value_of(message: Message) -> bytes:
    """The value of a record."""
    value = message.value()
    assert isinstance(value, bytes)
    return value


def produce(producer: Producer, topic: str, values: range, acknowledged: dict[tuple[int, int], bytes]) -> None:
    """Send values in turn to all partitions, and note what comes back; nothing may fail."""

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        acknowledged[place(message)] = value_of(message)

    for value in values:
        producer.produce(topic, b"%d" % value, partition=value % PARTITIONS, on_delivery=delivered)
    assert producer.flush(DEADLINE_S) == 0


def consumed(bootstrap: str, topic: str, count: int) -> dict[tuple[int, int], bytes]:
    """Read so many records from the beginning."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    found: dict[tuple[int, int], bytes] = {}

    def read() -> None:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            found[place(message)] = value_of(message)

    until(lambda: len(found) >= count, lambda: f"{count} records, but {len(found)}", meanwhile=read)
    consumer.close()
    return found


def test_a_cluster_loses_a_broker_and_nothing_else(cluster: LocalCluster) -> None:
    """Three replicas by default; kill one that leads, go on with two, start it again, and all are in sync."""
    bootstrap = cluster.record().bootstrap_servers
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("t", num_partitions=PARTITIONS)])["t"].result(DEADLINE_S)
    # Whichever broker is asked may hear of the topic a little later than the one that created it.
    until(
        lambda: [row[1:] for row in replicas(admin, "t")] == [(3, 3)] * PARTITIONS, "three replicas each", pause_s=0.1
    )
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})
    acknowledged: dict[tuple[int, int], bytes] = {}
    produce(producer, "t", range(300), acknowledged)

    victim = cluster.record().brokers[replicas(admin, "t")[0][0] - 1]
    assert victim.pid is not None
    os.kill(victim.pid, signal.SIGKILL)
    produce(producer, "t", range(300, 600), acknowledged)
    assert all(row[0] != victim.id for row in replicas(admin, "t"))
    assert [status.id for status in cluster.statuses() if status.state is ProcessState.DIED] == [victim.id]

    assert [process.id for process in cluster.start(ClusterOptions())] == [victim.id]
    produce(producer, "t", range(600, 900), acknowledged)
    until(lambda: [row[1:] for row in replicas(admin, "t")] == [(3, 3)] * PARTITIONS, "all are in sync", pause_s=0.1)
    assert len(acknowledged) == 900
    assert consumed(bootstrap, "t", 900) == acknowledged


def test_a_broker_is_added_to_a_cluster_that_runs(cluster: LocalCluster) -> None:
    """It is in the metadata of the others when the start returns or soon after, and takes replicas of new topics."""
    assert [process.id for process in cluster.start(ClusterOptions(brokers=4))] == [4]
    admin = AdminClient({"bootstrap.servers": cluster.record().bootstrap_servers})
    until(lambda: sorted(admin.list_topics(timeout=DEADLINE_S).brokers) == [1, 2, 3, 4], "four brokers", pause_s=0.1)
    admin.create_topics([NewTopic("t", num_partitions=4)])["t"].result(DEADLINE_S)
    until(lambda: sorted(row[0] for row in replicas(admin, "t")) == [1, 2, 3, 4], "a leader on each", pause_s=0.1)
