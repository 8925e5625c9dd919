"""Partitions that move between real brokers, while a producer goes on."""

from __future__ import annotations

import pytest
from tests.broker.moving_cluster import Cluster, Load, fill, folders, moving_cluster, values
from tests.kit.broker_process import MakeBroker
from tests.kit.waiting import until
from tests.kit.zookeeper import ZooKeeper

from ottla.protocol.config_resources import ConfigResourceType


@pytest.fixture
def cluster(make_broker: MakeBroker, zookeeper: ZooKeeper) -> Cluster:
    """Three brokers."""
    return moving_cluster(make_broker, zookeeper)


def test_a_partition_moves_under_load_without_losing_a_record(cluster: Cluster, topic: str) -> None:
    """From one broker to two others; the first one deletes its log."""
    cluster.create_topic(topic, [1])
    fill(cluster.bootstrap, topic, 500, 1000)
    load = Load(cluster.bootstrap, topic)
    until(lambda: len(load.acknowledged) > 50, "the load is taken")

    cluster.alter(topic, [2, 3])
    until(lambda: not cluster.moving(), "the partition has moved")
    seen = len(load.acknowledged)
    until(lambda: len(load.acknowledged) > seen + 50, "the load is taken at the new place")
    load.stop()

    leader, replicas, isr = cluster.metadata(topic)
    assert (leader in (2, 3), replicas, isr) == (True, [2, 3], [2, 3])
    assert not load.failures
    expected = {str(number).encode() for number in load.acknowledged}
    found = values(cluster.bootstrap, topic, 500 + len(expected))
    assert expected <= {value for value in found if not value.endswith(b".")}
    assert sum(value.endswith(b".") for value in found) == 500
    until(lambda: not folders(cluster.brokers[1], topic), "the old replica is deleted")
    assert folders(cluster.brokers[2], topic)
    assert folders(cluster.brokers[3], topic)


def test_a_throttled_move_is_finished_by_another_controller(cluster: Cluster, topic: str) -> None:
    """It is slow while it is throttled, survives the controller, and is fast when the throttle is lifted."""
    cluster.create_topic(topic, [2])
    fill(cluster.bootstrap, topic, 6000, 1000)
    cluster.set_option(ConfigResourceType.BROKER, "", follower_replication_throttled_rate="50000")
    cluster.set_option(ConfigResourceType.TOPIC, topic, follower_replication_throttled_replicas="*")
    until(lambda: "topic_options_changed" in cluster.brokers[3].output(), "the brokers know the throttle")
    cluster.alter(topic, [3])
    until(lambda: folders(cluster.brokers[3], topic), "the copy has begun")
    assert cluster.moving() == [topic]

    cluster.brokers.pop(1).kill()
    assert cluster.moving() == [topic]
    assert folders(cluster.brokers[2], topic)
    cluster.set_option(ConfigResourceType.BROKER, "", follower_replication_throttled_rate="1000000000")
    until(lambda: not cluster.moving(), "the partition has moved")
    assert cluster.metadata(topic) == (3, [3], [3])
    assert len(values(cluster.bootstrap, topic, 6000)) == 6000
    until(lambda: not folders(cluster.brokers[2], topic), "the old replica is deleted")
