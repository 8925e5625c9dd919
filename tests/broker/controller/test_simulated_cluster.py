"""The simulation of large clusters runs, and the simulated ZooKeeper behaves like the real one where it matters."""

from __future__ import annotations

import pytest
from bench.simulate_cluster import measure
from bench.support.object_size import object_bytes
from bench.support.simulated_zookeeper import Ensemble, SimulatedZooKeeper

from ottla.broker.cluster.operations import (
    BadVersionError,
    Check,
    Create,
    Delete,
    MultiError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    SetData,
)


def test_a_small_cluster_is_simulated() -> None:
    """All partitions are created, moved and deleted; every step asks something of brokers and ZooKeeper."""
    measured = measure(brokers=4, partitions=25, topic_partitions=10, replication_factor=3)
    steps = {step["step"]: step for step in measured["steps"]}
    assert list(steps) == ["create", "failover", "return", "in sync", "controller", "delete"]
    assert all(step["requests"] > 0 and step["zookeeper_wait_s"] > 0 for step in steps.values())
    # Two nodes for a partition, and for each of three topics its node, its options and the parent of its partitions.
    assert steps["create"]["zookeeper_nodes_written"] == 2 * 25 + 3 * 3
    assert measured["controller_mb"] > 0
    assert measured["zookeeper"]["watches"] > 3


@pytest.fixture
def zookeeper() -> SimulatedZooKeeper:
    """A client, and a node with a child."""
    client = SimulatedZooKeeper(Ensemble(read_s=1, write_s=10))
    client.ensure_path("/a/b")
    client.work.wait_s = 0
    return client


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        (Create("/a"), NodeExistsError),
        (Create("/x/y"), NoNodeError),
        (SetData("/x", b""), NoNodeError),
        (SetData("/a", b"", 5), BadVersionError),
        (Delete("/a"), NotEmptyError),
        (Check("/a", 1), BadVersionError),
    ],
)
def test_a_multi_does_all_or_nothing(
    zookeeper: SimulatedZooKeeper, operation: Operation, reason: type[Exception]
) -> None:
    """The error names the operation; those before it are undone, and seen by those after them."""
    with pytest.raises(MultiError) as refused:
        zookeeper.multi([Create("/new"), operation])
    assert (refused.value.index, type(refused.value.reason)) == (1, reason)
    assert zookeeper.exists("/new") is None
    zookeeper.multi([Create("/new"), Create("/new/child"), Delete("/new/child"), SetData("/new", b"x", 0)])
    assert zookeeper.read("/new").stat.version == 1


def test_a_watch_is_called_once(zookeeper: SimulatedZooKeeper) -> None:
    """When a node, or the list of its children, has changed; also when a session has ended."""
    seen: list[str] = []
    other = SimulatedZooKeeper(zookeeper._ensemble)
    zookeeper.children("/a", lambda: seen.append("children"))
    zookeeper.read("/a", lambda: seen.append("data"))
    zookeeper.exists("/a/broker", lambda: seen.append("exists"))
    other.create("/a/broker", ephemeral=True)
    assert seen == ["exists", "children"]
    zookeeper.write("/a", b"1")
    zookeeper.write("/a", b"2")
    assert seen == ["exists", "children", "data"]
    zookeeper.children("/a", lambda: seen.append("children"))
    other.close()
    assert seen[3:] == ["children"]
    assert zookeeper.children("/a") == ["b"]


def test_requests_of_one_call_wait_together(zookeeper: SimulatedZooKeeper) -> None:
    """Ten at a time."""
    zookeeper.read_many(["/a"] * 25)
    assert zookeeper.work.wait_s == 3
    zookeeper.multi_many([[SetData("/a", b"")]] * 11)
    assert zookeeper.work.wait_s == 23


def test_shared_objects_have_their_size_once() -> None:
    """Of all that can be reached."""
    text = "x" * 10_000
    assert object_bytes([text, (text,)]) < 11_000
