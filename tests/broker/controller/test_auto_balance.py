"""`ottla.balance=auto`: ZooKeeper and controllers are real, brokers only listen and tell the sizes of replicas."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.broker.controller.brokers import brokers
from tests.broker.controller.reassigning import Cluster, wait_for
from tests.kit.clock import FakeClock
from tests.kit.zookeeper import ZooKeeper

from ottla.broker.cluster.topics import TopicSpec
from ottla.broker.common.clocks import Clocks
from ottla.broker.controller.term import Term
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.describe_log_dirs import DescribeLogDirsRequest

PARTITIONS = [TopicPartition("orders", index) for index in range(12)]
# The tests say when to check.
AUTO = {"ottla.balance": "auto", "ottla.balance.interval.ms": "3600000", "ottla.balance.moves.per.broker": "100"}
MiB = 1 << 20


@pytest.fixture
def monotonic_ms() -> FakeClock[int]:
    """The time between two checks is what the test says."""
    return FakeClock(0)


@pytest.fixture
def cluster(zookeeper: ZooKeeper, monotonic_ms: FakeClock[int]) -> Iterator[Cluster]:
    """Three brokers, of which the third is new and empty."""
    with brokers(zookeeper, 1, 2, 3, options=AUTO, clocks=Clocks(monotonic_ms=monotonic_ms)) as started:
        assignment = {index: [1, 2] if index % 2 else [2, 1] for index in range(len(PARTITIONS))}
        started[0].cluster.create_topic(TopicSpec("orders", assignment=assignment))
        started[0].fake.wait_for(
            lambda: all(started[0].fake.leader(*each) in (1, 2) for each in PARTITIONS),
        )
        for broker in started:
            broker.fake.sizes = dict.fromkeys(PARTITIONS, MiB)
        yield Cluster(started)


def check(cluster: Cluster) -> bool:
    """Let the controller check, and wait until it has planned; return whether it measured anything."""

    def start(term: Term) -> bool:
        term.auto_balance.check()
        return term.auto_balance.is_measuring

    is_measured = cluster.do(start)
    while cluster.do(lambda term: term.auto_balance.is_measuring):
        pass
    return is_measured


def moving(cluster: Cluster) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the partitions that get replicas, and where."""
    return {each: assignment.adding for each, assignment in cluster.do(lambda term: term.moves.listing()).items()}


def finish(cluster: Cluster) -> None:
    """Let everything catch up that moves."""
    for partition in moving(cluster):
        cluster.catch_up(partition)
        cluster.wait_until_done(partition)
    cluster.do(lambda term: None)


def test_a_new_broker_fills_itself_once(cluster: Cluster) -> None:
    """It gets about a third of the replicas, and then nothing moves any more."""
    assert check(cluster)
    added = moving(cluster)
    assert 6 <= len(added) <= 9
    assert set(added.values()) == {(3,)}
    finish(cluster)
    leaders = [cluster.state(each).leader for each in PARTITIONS]
    assert all(leaders.count(broker) >= 3 for broker in (1, 2, 3))

    assert check(cluster)
    assert not moving(cluster)


def test_a_drained_broker_empties_itself(cluster: Cluster) -> None:
    """Also while the cluster is even otherwise."""
    for broker in cluster.brokers.values():
        broker.services.configs.set_broker(
            broker.services.configs.broker().with_dynamic({}, {"ottla.drained.brokers": "1"})
        )
    assert check(cluster)
    finish(cluster)
    assert all(sorted(cluster.recorded(each)[0]) == [2, 3] for each in PARTITIONS)


def test_nothing_moves_by_itself_by_default(zookeeper: ZooKeeper) -> None:
    """`ottla.balance` is off."""
    with brokers(zookeeper, 1, 2) as started:
        cluster = Cluster(started)
        started[0].cluster.create_topic(TopicSpec("orders", assignment=dict.fromkeys(range(4), (1,))))
        started[0].fake.wait_for(lambda: started[0].fake.leader("orders", 3) == 1)
        assert not check(cluster)
        assert not moving(cluster)


def test_nothing_is_planned_while_a_broker_is_missing_or_stops(cluster: Cluster) -> None:
    """After a restart it has its replicas again."""
    cluster.do(lambda term: term.context.shutting_down.add(2))
    assert not check(cluster)
    cluster.do(lambda term: term.context.shutting_down.discard(2))
    cluster.kill(2)
    cluster.brokers[1].wait_for_brokers(2)
    assert not check(cluster)


def test_one_plan_at_a_time(cluster: Cluster) -> None:
    """While something moves, whoever asked for it, nothing is planned."""
    assert cluster.alter(PARTITIONS[0], [3]) is ErrorCode.NONE
    assert not check(cluster)


def test_small_differences_move_nothing(cluster: Cluster) -> None:
    """Planning begins at twice the distance that a plan would leave."""
    check(cluster)
    finish(cluster)
    for broker in cluster.brokers.values():
        broker.fake.sizes[PARTITIONS[0]] = 2 * MiB
    assert check(cluster)
    assert not moving(cluster)


@pytest.mark.parametrize(("seconds", "leaders"), [(1, 2), (60, 1)], ids=["in a second", "in a minute"])
def test_the_growth_of_partitions_is_their_traffic(
    cluster: Cluster, monotonic_ms: FakeClock[int], seconds: int, leaders: int
) -> None:
    """Two looks, and the busy leaders are on different brokers; that copies nothing. Little traffic is left alone."""
    check(cluster)
    finish(cluster)
    by_leader: dict[int, list[TopicPartition]] = {}
    for partition in PARTITIONS:
        by_leader.setdefault(cluster.state(partition).leader, []).append(partition)
    busy = next(
        found
        for leader, led in by_leader.items()
        if len(found := [each for each in led if len({leader, *cluster.recorded(each)[0]}) == 2][:2]) == 2
    )
    assert len({cluster.state(each).leader for each in busy}) == 1
    # They grow by so little that nothing but their traffic can be uneven.
    monotonic_ms.now += seconds * 1000
    for broker in cluster.brokers.values():
        for partition in busy:
            broker.fake.sizes[partition] = MiB + MiB // 20
    assert check(cluster)
    finish(cluster)
    assert len({cluster.state(each).leader for each in busy}) == leaders


def test_a_broker_that_does_not_answer_stops_nothing_but_the_plan(cluster: Cluster) -> None:
    """The controller stays, and the next check measures again."""
    fake = cluster.brokers[3].fake
    wait_for(cluster.brokers[3], lambda fake: fake.requests)
    take = fake._take

    def refuse(request: object) -> object:
        if isinstance(request, DescribeLogDirsRequest):
            raise OSError("gone")
        return take(request)  # type: ignore[arg-type]

    fake._take = refuse  # type: ignore[method-assign, assignment]
    epoch = cluster.controller.controller.epoch
    assert check(cluster)
    assert not moving(cluster)
    fake._take = take  # type: ignore[method-assign]
    assert check(cluster)
    assert moving(cluster)
    assert cluster.controller.controller.epoch == epoch
