"""When a broker can be stopped: the rule, and the command on real brokers."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from tests.client.cli.conftest import Ottla
from tests.kit.broker_process import MakeBroker
from tests.kit.zookeeper import ZooKeeper, ZooKeeperServer

from ottla.client.cli.health.safe_to_stop import SafeToStop, safe_to_stop
from ottla.protocol.identifiers import TopicPartition


class Partition(NamedTuple):
    """Where a partition is."""

    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


def judged(
    broker_id: int,
    *partitions: tuple[tuple[int, ...], tuple[int, ...]],
    alive: tuple[int, ...] = (1, 2, 3),
    controller: int | None = 3,
    min_isr: int | None = 2,
    **options: Any,
) -> SafeToStop:
    """Judge a cluster with one topic; each partition has replicas and an ISR, whose first broker leads."""
    found = [
        (TopicPartition("orders", number), Partition(isr[0], replicas, isr))
        for number, (replicas, isr) in enumerate(partitions)
    ]
    known = {} if min_isr is None else {"orders": min_isr}
    return safe_to_stop(broker_id, alive, controller, found, known, **options)


ALL = ((1, 2, 3), (1, 2, 3))


def test_a_broker_is_safe_to_stop_if_others_have_everything() -> None:
    """Its leaders move; nothing needs a reason."""
    found = judged(1, ALL, ((2, 3, 1), (2, 3, 1)))
    assert (found.is_safe, found.reasons, found.notes) == (True, (), ())
    assert found.leaders_to_move == (TopicPartition("orders", 0),)


def test_the_only_copy_in_sync_is_needed() -> None:
    """A partition without a leader counts, a replica that lags is not missed, and dead brokers are no copies."""
    found = judged(1, ((1, 2), (1,)), ALL)
    assert (found.is_safe, found.unavailable, found.catching_up) == (False, (TopicPartition("orders", 0),), (2,))
    assert found.reasons == ("It has the only copy in sync of 1 partition: orders-0.",)
    assert found.leaders_to_move == (TopicPartition("orders", 1),)
    assert judged(2, ((1, 2), (1,)), ALL).is_safe
    assert not judged(1, ((1, 2), (1, 2)), alive=(1, 3), min_isr=1).is_safe


def test_enough_replicas_for_acks_all_stay() -> None:
    """A replica that is out of sync is not one of them."""
    found = judged(2, ((1, 2, 3), (1, 2)))
    assert (found.is_safe, found.below_min_isr) == (False, (TopicPartition("orders", 0),))
    assert judged(2, ((1, 2, 3), (1, 2)), min_isr=1).is_safe
    assert judged(3, ((1, 2, 3), (1, 2))).is_safe


def test_partitions_without_a_spare_replica_can_be_allowed() -> None:
    """One replica, or as many as acks=all needs: waiting does not help. What waiting helps stays a reason."""
    lone, tight = ((1,), (1,)), ((1, 2), (1, 2))
    assert len(judged(1, lone, tight).reasons) == 2
    allowed = judged(1, lone, tight, allow_unreplicated=True)
    assert (allowed.is_safe, len(allowed.notes)) == (True, 2)
    assert not judged(1, lone, ((1, 2), (1,)), allow_unreplicated=True).is_safe
    assert judged(1, lone, alive=(1,), allow_unreplicated=True).is_safe
    assert not judged(1, ALL, alive=(1,), allow_unreplicated=True).is_safe


def test_others_must_be_able_to_take_over() -> None:
    """That takes a controller and ZooKeeper; what cannot be read is not taken for good."""
    assert judged(1, ALL, controller=None).reasons == ("There is no controller, so no other broker would take over.",)
    assert "Broker 2 is without ZooKeeper" in judged(1, ALL, cut_off=(2,)).reasons[0]
    assert judged(1, ALL, min_isr=None).reasons == ("min.insync.replicas of 1 topic cannot be read: orders.",)
    assert judged(1, alive=(1,)).reasons == ("It is the only broker.",)


def test_what_is_weaker_is_noted() -> None:
    """Other brokers that are down or catching up, and the controller."""
    found = judged(3, ((3, 4, 5), (3, 4)), alive=(1, 2, 3, 4), min_isr=1)
    assert (found.is_safe, found.brokers_down, found.is_controller) == (True, (5,), True)
    assert found.notes[0] == "Broker 5 is down."
    assert "controller" in found.notes[1]


def test_the_command_judges_a_cluster_of_two(
    ottla: Ottla, make_broker: MakeBroker, zookeeper_server: ZooKeeperServer
) -> None:
    """Safe while the other has everything; not when a topic has one replica, or the other broker is gone."""
    connect = ZooKeeper(zookeeper_server).connect
    options = ("offsets.topic.replication.factor=2", "offsets.topic.num.partitions=1", "min.insync.replicas=1")
    first, second = (make_broker(*options, zookeeper=connect, broker_id=number) for number in (1, 2))
    run = partial(ottla, bootstrap=f"{first.bootstrap},{second.bootstrap}")
    assert run("topic", "create", "both", "-r", "2").code == 0
    assert run("group", "seek", "billing", "--to", "start", "-t", "both", "--yes").code == 0
    verdicts = [run("broker", "safe-to-stop", number, "--format", "json") for number in "12"]
    assert [each.code for each in verdicts] == [0, 0], verdicts
    assert sorted(verdicts[0].items[0]["groups"] + verdicts[1].items[0]["groups"]) == ["billing"]
    assert [each.items[0]["transactional_ids"] for each in verdicts] == [[], []]

    assert run("topic", "create", "lone", "-r", "1").code == 0
    leader = run("partition", "leaders", "--topic", "lone", "--format", "json").items[0]["leader"]
    refused = run("broker", "safe-to-stop", str(leader))
    assert (refused.code, "NOT safe" in refused.out, "lone-0" in refused.out) == (1, True, True)
    assert run("broker", "safe-to-stop", str(leader), "--allow-unreplicated").code == 0
    assert run("broker", "safe-to-stop", str(3 - leader)).code == 0

    second.kill()
    # It is a member of the cluster for another moment, but it does not answer.
    alone = run("broker", "safe-to-stop", "1", "--allow-unreplicated")
    assert (alone.code, "the only copy in sync of 2 partitions" in alone.out, "Broker 2 is down." in alone.out) == (
        (1, True, True)
    ), alone
