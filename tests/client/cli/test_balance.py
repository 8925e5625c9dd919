"""`ottla cluster balance` and `ottla broker drain` on a cluster of three real brokers."""

from __future__ import annotations

from typing import Any

import pytest
from tests.client.cli.conftest import Ottla, Printed
from tests.kit.broker_process import BrokerProcess, MakeBroker
from tests.kit.waiting import until
from tests.kit.zookeeper import ZooKeeper, ZooKeeperServer

PARTITIONS = 12
# Commands measure and look more often than for people, who would not follow that.
LOOK_SECONDS = 0.1


@pytest.fixture
def brokers(make_broker: MakeBroker, zookeeper_server: ZooKeeperServer) -> list[BrokerProcess]:
    """Three brokers."""
    connect = ZooKeeper(zookeeper_server).connect
    return [make_broker(zookeeper=connect, broker_id=number) for number in (1, 2, 3)]


class Cluster:
    """The commands of a user of the cluster."""

    def __init__(self, ottla: Ottla, brokers: list[BrokerProcess], topic: str) -> None:
        self._ottla = ottla
        self._at = brokers[0].bootstrap
        self.topic = topic

    def __call__(self, line: str) -> Printed:
        """Run a command."""
        return self._ottla(*line.split(), bootstrap=self._at)

    def replicas(self) -> dict[int, int]:
        """Return how many replicas each broker has."""
        return {row["broker_id"]: row["replicas"] for row in self("cluster brokers --format json").items}

    def throttled(self) -> list[str]:
        """Return the options of topics and brokers that slow down moves."""
        rows = [
            row
            for name in (f"topic {self.topic}", "broker 1", "broker 2", "broker 3")
            for row in self(f"config list {name} --format json").items
        ]
        return [row["name"] for row in rows if "throttled" in row["name"] and not row["is_default"]]


@pytest.fixture
def cluster(ottla: Ottla, brokers: list[BrokerProcess], topic: str, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Three brokers; a topic with two replicas."""
    for name in ("commands.broker.LOOK_SECONDS", "commands.cluster.LOOK_SECONDS", "plans.balance_run._LOOK_SECONDS"):
        monkeypatch.setattr(f"ottla.client.cli.{name}", LOOK_SECONDS)
    made = Cluster(ottla, brokers, topic)
    until(lambda: len(made("cluster brokers --format json").items) == 3, "all brokers are known")
    assert made(f"topic create {topic} -p {PARTITIONS} -r 2").code == 0
    until(lambda: made("cluster health").code == 0, "all replicas are in sync")
    return made


def check_a_cancelled_drain(cluster: Cluster) -> None:
    """The command may leave, and the moves go on by themselves; cancelling returns to the earlier replicas."""
    assert cluster(f"bench produce {cluster.topic} --records 500 --size 10000").code == 0
    started = cluster("broker drain 3 --yes --detach --throttle 1KiB --moves 1")
    assert (started.code, "The moves go on by themselves" in started.err) == (0, True)
    states: list[dict[str, Any]] = []

    def one_copies() -> bool:
        states[:] = cluster("cluster balance --status --format json").items
        return {(each["state"], 3 in each["removing"]) for each in states} == {("copying", True), ("waiting", True)}

    # A plan also has leaders to move, which copy nothing and are done first.
    until(one_copies, lambda: f"one partition copies, and the others wait: {states}")
    leaders = cluster("partition leaders --format json").items
    assert 3 not in {each["leader"] for each in leaders}, "leaders move before anything is copied"
    assert cluster.throttled()

    shown = cluster("cluster balance --status")
    assert " of them waiting: " in shown.out
    cancelled = cluster("cluster balance --cancel --yes")
    assert (cancelled.code, "Cancelled" in cancelled.err) == (0, True)
    until(lambda: cluster("cluster balance --status").out == "No partitions are moving.\n", "nothing moves")
    assert cluster.replicas()[3] > 0, "those that were done stay, and the others are back"
    until(lambda: not cluster.throttled(), "nothing is throttled")
    assert cluster("broker drain 3 --undo").code == 0


def test_brokers_are_emptied_filled_and_balanced(cluster: Cluster) -> None:
    """Drain one, and cancel; drain it, with nothing new placed there; undo; balance, with a throttle that is gone
    afterwards. One test, because starting brokers takes most of its time.
    """
    check_a_cancelled_drain(cluster)
    before = cluster.replicas()
    assert cluster("broker drain 3").code == 2, "it asks first, and there is no terminal"
    planned = cluster("broker drain 3 --dry-run --format json")
    assert planned.code == 0, planned.err
    (plan,) = planned.items
    assert plan["is_dry_run"]
    assert plan["copied_replicas"] == before[3]
    assert cluster.replicas() == before

    drained = cluster("broker drain 3 --yes")
    assert drained.code == 0, drained.err
    assert f"Done: {before[3]} partitions moved" in drained.err
    assert cluster.replicas() == {1: PARTITIONS, 2: PARTITIONS, 3: 0}
    assert cluster(f"topic create {cluster.topic}-new -p 6 -r 2").code == 0
    assert cluster.replicas()[3] == 0
    refused = cluster(f"topic create {cluster.topic}-wide -p 1 -r 3")
    assert (refused.code, "2 brokers are alive and not drained" in refused.err) == (1, True)
    impossible = cluster("broker drain 2 --yes")
    assert (impossible.code, "needs 2 brokers for its replicas; 1 would be left" in impossible.err) == (1, True)

    undone = cluster("broker drain 3 --undo")
    assert (undone.code, "Broker 3 may get replicas again" in undone.err) == (0, True)
    assert cluster("broker drain 3 --undo").code == 1, "it is not drained"

    balanced = cluster("cluster balance --yes --throttle 50MiB")
    assert balanced.code == 0, balanced.err
    assert "PARTITION" in balanced.out
    assert "BROKER" in balanced.out
    held = cluster.replicas().values()
    assert max(held) - min(held) <= 3, held
    assert not cluster.throttled()
    again = cluster("cluster balance --yes")
    assert (again.code, "The brokers are balanced." in again.err) == (0, True)
    assert cluster("cluster balance --status").out == "No partitions are moving.\n"
    unknown = cluster("broker drain 9 --yes")
    assert (unknown.code, "There is no broker 9; the live brokers are 1, 2, 3." in unknown.err) == (1, True)
