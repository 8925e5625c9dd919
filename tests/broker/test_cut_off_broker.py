"""A broker that clients and other brokers reach, and that does not reach ZooKeeper: where it sends its clients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kit.waiting import until

from ottla.client.admin.results import NewTopic
from ottla.client.net.blocking_connection import BlockingConnection
from ottla.protocol.api import Api
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.sync import Admin
from ottla.testing import FaultCluster

# The brokers look after what they know of each other as often as this asks for.
OPTIONS = {"replica.lag.time.max.ms": "2000"}
NO_LEADER = -1


@contextmanager
def asking(cluster: FaultCluster, broker: int) -> Iterator[BlockingConnection]:
    """Connect to one broker, whatever it says of others."""
    host, _, port = cluster.address(broker).partition(":")
    connection = BlockingConnection(
        host, int(port), client_id="test", connect_timeout_ms=10_000, request_timeout_ms=10_000
    )
    try:
        yield connection
    finally:
        connection.close()


def told(connection: BlockingConnection) -> tuple[list[int], int]:
    """Return the brokers that a broker names, and whom it takes for the leader of the topic."""
    body = MetadataRequest(topics=[MetadataRequestTopic(name="orders")], allow_auto_topic_creation=False)
    response: MetadataResponse = connection.request(Api.METADATA, 8, body)
    leaders = [partition.leader_id for topic in response.topics for partition in topic.partitions]
    return sorted(broker.node_id for broker in response.brokers), leaders[0] if leaders else NO_LEADER


def test_a_broker_that_was_replaced_without_knowing_sends_its_clients_to_others(tmp_path: Path) -> None:
    """Nothing is written, so no follower seems to fall behind: the broker asks the controller whether it is known."""
    with FaultCluster(tmp_path, 3, OPTIONS) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            controller = admin.describe_cluster().controller_id
            leader, *others = sorted(cluster.brokers, key=lambda broker: broker == controller)
            admin.create_topics([NewTopic("orders", replica_assignments={0: [leader, *others]})])
        with asking(cluster, leader) as connection:
            until(lambda: told(connection) == ([1, 2, 3], leader), lambda: told(connection))
            cluster.partition(leader, "zookeeper")
            until(
                lambda: told(connection) == (sorted(others), NO_LEADER),
                lambda: f"brokers and leader, as broker {leader} tells: {told(connection)}",
                seconds=30,
            )
            cluster.heal()
            until(lambda: told(connection) == ([1, 2, 3], others[0]), lambda: told(connection))


def test_brokers_whose_sessions_are_only_in_doubt_go_on_as_before(tmp_path: Path) -> None:
    """ZooKeeper is away for all of them, and the controller has seen nobody go."""
    with FaultCluster(tmp_path, 3, OPTIONS) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("orders", replica_assignments={0: [1, 2, 3]})])
        with asking(cluster, 1) as connection:
            until(lambda: told(connection) == ([1, 2, 3], 1), lambda: told(connection))
            cluster.pause("zookeeper")
            # The broker asks the controller every second, and tries ZooKeeper about as often.
            until(
                lambda: cluster.log(1).partition("state=in_doubt")[2].count("Connection time-out") >= 3,
                "the session is in doubt for a while",
            )
            assert told(connection) == ([1, 2, 3], 1)
