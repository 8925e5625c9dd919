"""A consumer of a real cluster in which records are lost: the leader that has them dies, and one without takes over."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from ottla.client.admin.results import NewTopic
from ottla.client.types import TopicPartition
from ottla.sync import Admin, Consumer, Producer
from ottla.testing import FaultCluster

TIMEOUT_S = 90
BEFORE, LOST, AFTER = ([b"%s %d" % (word, number) for number in range(10)] for word in (b"before", b"lost", b"after"))


def write(cluster: FaultCluster, values: list[bytes]) -> None:
    """Write records, one batch each."""
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for value in values:
            producer.send_and_wait("orders", value)


def read(consumer: Consumer, count: int) -> list[tuple[int, bytes | None]]:
    """Read so many records; fewer if no more come in time."""
    found: list[tuple[int, bytes | None]] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(found) < count and time.monotonic() < deadline:
        for records in consumer.getmany(timeout_ms=1000).values():
            found += [(record.offset, record.value) for record in records]
    return found


def test_a_reader_goes_back_to_where_its_log_was_cut(tmp_path: Path) -> None:
    """Not to one of the ends: what it read before is still there, and what was written since begins there."""
    options = {"unclean.leader.election.enable": "true", "num.partitions": "1"}
    with FaultCluster(tmp_path, 2, options) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("orders", num_partitions=1, replication_factor=2)])
            write(cluster, BEFORE)
            leader = admin.describe_topics(["orders"])[0].partitions[0].leader
        (follower,) = {1, 2} - {leader}
        assert leader is not None
        settings: dict[str, Any] = {"metadata_max_age_ms": 500, "auto_offset_reset": "earliest"}
        with Consumer(bootstrap_servers=cluster.bootstrap_servers, **settings) as consumer:
            consumer.assign([TopicPartition("orders", 0)])
            assert read(consumer, 10) == list(enumerate(BEFORE))
            cluster.kill(follower)
            write(cluster, LOST)
            assert read(consumer, 10) == list(enumerate(LOST, 10))
            cluster.kill(leader)
            cluster.start(follower)
            write(cluster, AFTER)
            assert read(consumer, 10) == list(enumerate(AFTER, 10))
