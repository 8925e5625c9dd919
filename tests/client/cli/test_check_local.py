"""`ottla check health --local`, which supervisors of containers run."""

from __future__ import annotations

from pathlib import Path

from tests.client.cli.conftest import Ottla
from tests.kit.broker_process import MakeBroker
from tests.kit.hosts import LOOPBACK
from tests.kit.zookeeper import ZooKeeper, ZooKeeperServer


def test_a_broker_is_healthy_when_it_answers_as_a_member(ottla: Ottla) -> None:
    """Versions and metadata came back."""
    check = ottla("check", "health", "--local")
    assert (check.code, check.out.split(":")[0]) == (0, "OK")
    assert check.out.endswith("answers and knows 1 brokers\n")


def test_a_broker_is_not_blamed_for_what_is_wrong_elsewhere(
    ottla: Ottla, make_broker: MakeBroker, zookeeper_server: ZooKeeperServer, topic: str
) -> None:
    """A dead follower is a warning for the cluster; restarting the leader would make it worse."""
    connect = ZooKeeper(zookeeper_server).connect
    first = make_broker(zookeeper=connect, broker_id=1)
    second = make_broker(zookeeper=connect, broker_id=2)
    ottla("topic", "create", topic, "-r", "2", "-c", "min.insync.replicas=1", bootstrap=first.bootstrap)
    assert second.stop() == 0
    assert ottla("check", "health", bootstrap=first.bootstrap).code == 1
    assert ottla("check", "health", "--local", bootstrap=first.bootstrap).code == 0


def test_an_address_where_nobody_answers_is_critical(ottla: Ottla) -> None:
    """Also as JSON; and an option that does not exist is said to be wrong, not the broker."""
    nowhere = f"127.0.0.1:{LOOPBACK.free_port()}"
    check = ottla("check", "health", "--local", "--format", "json", bootstrap=nowhere)
    assert (check.code, check.items[0]["status"]) == (2, "CRITICAL")
    assert ottla("check", "health", "--local", "-X", "no.such.option=1").code == 2


def test_the_image_asks_for_health_in_this_way() -> None:
    """The Dockerfile's command line is one that exists."""
    dockerfile = (Path(__file__).parents[3] / "Dockerfile").read_text()
    assert 'CMD ["ottla", "check", "health", "--local", "--timeout", "12"]' in dockerfile
