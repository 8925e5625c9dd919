"""Plans that are carried out a few moves at a time: ZooKeeper and controllers are real, brokers only listen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pytest
from tests.broker.controller.brokers import Broker, brokers
from tests.broker.controller.reassigning import Cluster, Stop, wait_for
from tests.kit.zookeeper import ZooKeeper

from ottla.broker.cluster import znodes
from ottla.broker.cluster.topics import TopicSpec
from ottla.broker.controller.reassignments.move_queue import MoveLimits
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition

PARTITIONS = [TopicPartition("orders", index) for index in range(3)]
FIRST, SECOND, THIRD = PARTITIONS
ONE_AT_A_TIME = MoveLimits(1)


@pytest.fixture
def cluster(zookeeper: ZooKeeper) -> Iterator[Cluster]:
    """Three brokers; the first is the controller, and has the only replicas of three partitions."""
    with brokers(zookeeper, 1, 2, 3) as started:
        cluster = Cluster(started)
        started[0].cluster.create_topic(TopicSpec("orders", assignment=dict.fromkeys(range(3), (1,))))
        started[0].fake.wait_for(lambda: all(started[0].fake.leader("orders", each) == 1 for each in range(3)))
        yield cluster


def plan(
    cluster: Cluster, targets: Mapping[TopicPartition, Sequence[int] | None], limits: MoveLimits | None = ONE_AT_A_TIME
) -> dict[TopicPartition, ErrorCode]:
    """Ask for moves within limits."""
    outcome = cluster.do(lambda term: term.moves.alter(targets, limits))
    return {each: ErrorCode.NONE if error is None else error.code for each, error in outcome.items()}


def waiting(cluster: Cluster) -> set[TopicPartition]:
    """Return the partitions that wait for their turn."""
    return set(cluster.do(lambda term: term.moves.listing())) - set(cluster.listed())


def finish(cluster: Cluster, partition: TopicPartition) -> None:
    """Let the replicas of a move catch up, and wait until the controller has taken note."""
    cluster.catch_up(partition)
    cluster.wait_until_done(partition)
    # What follows from it is an event of its own, and comes before this one.
    cluster.do(lambda term: None)


def has_plan(cluster: Cluster) -> bool:
    """Return whether a plan is recorded."""
    return next(iter(cluster.brokers.values())).zookeeper.exists(znodes.MOVES) is not None


def test_moves_start_when_their_brokers_have_nothing_else_to_copy(cluster: Cluster) -> None:
    """All three copy from broker 1, so they go one after the other; all are listed from the beginning."""
    assert plan(cluster, dict.fromkeys(PARTITIONS, (2,))) == dict.fromkeys(PARTITIONS, ErrorCode.NONE)
    for done, partition in enumerate(PARTITIONS):
        assert list(cluster.listed()) == [partition]
        assert waiting(cluster) == set(PARTITIONS[done + 1 :])
        finish(cluster, partition)
        assert cluster.recorded(partition) == ([2], [], [])
    assert not has_plan(cluster)


def test_the_limit_counts_for_each_broker(cluster: Cluster) -> None:
    """Two at a time from broker 1."""
    plan(cluster, {FIRST: [2], SECOND: [3], THIRD: [2]}, MoveLimits(2))
    assert list(cluster.listed()) == [FIRST, SECOND]
    finish(cluster, SECOND)
    assert list(cluster.listed()) == [FIRST, THIRD]


def test_leaders_change_before_any_turn_comes(cluster: Cluster) -> None:
    """Where a replica that stays is in sync, the leaving broker leads nothing any more; that copies nothing."""
    for partition in PARTITIONS:
        cluster.alter(partition, [1, 2])
        finish(cluster, partition)
    plan(cluster, dict.fromkeys(PARTITIONS, (3, 2)))
    assert [cluster.state(each).leader for each in PARTITIONS] == [2, 2, 2]
    assert list(cluster.listed()) == [FIRST]
    for partition in PARTITIONS:
        finish(cluster, partition)
    # The preferred ones lead at the end.
    assert [cluster.state(each).leader for each in PARTITIONS] == [3, 3, 3]
    assert [cluster.recorded(each)[0] for each in PARTITIONS] == [[3, 2]] * 3


def test_another_order_needs_no_turn(cluster: Cluster) -> None:
    """The leader changes at once although a copy is under way on its broker."""
    cluster.alter(FIRST, [1, 2])
    finish(cluster, FIRST)
    plan(cluster, {SECOND: [3], THIRD: [3], FIRST: [2, 1]})
    assert cluster.recorded(FIRST) == ([2, 1], [], [])
    assert cluster.state(FIRST).leader == 2
    assert list(cluster.listed()) == [SECOND]


def test_the_next_controller_goes_on_with_the_plan(cluster: Cluster) -> None:
    """It finds the plan in ZooKeeper, and in the assignments what is done of it."""
    for partition in PARTITIONS:
        cluster.alter(partition, [2])
        finish(cluster, partition)
    plan(cluster, dict.fromkeys(PARTITIONS, (3,)))
    finish(cluster, FIRST)
    assert list(cluster.listed()) == [SECOND]

    cluster.kill(1)
    witness = cluster.controller
    wait_for(witness, lambda fake: fake.leader("orders", 1) is not None)
    assert list(cluster.listed()) == [SECOND]
    assert waiting(cluster) == {THIRD}
    finish(cluster, SECOND)
    finish(cluster, THIRD)
    assert [cluster.recorded(each)[0] for each in PARTITIONS] == [[3]] * 3
    assert not has_plan(cluster)


def test_cancelling_drops_what_waits_and_takes_back_what_has_started(cluster: Cluster) -> None:
    """Nothing is left of the plan, in ZooKeeper neither."""
    plan(cluster, dict.fromkeys(PARTITIONS, (2,)))
    assert plan(cluster, dict.fromkeys(PARTITIONS), None) == dict.fromkeys(PARTITIONS, ErrorCode.NONE)
    cluster.wait_until_done(FIRST)
    cluster.do(lambda term: None)
    assert [cluster.recorded(each) for each in PARTITIONS] == [([1], [], [])] * 3
    assert not waiting(cluster)
    assert not has_plan(cluster)


def test_a_later_request_replaces_what_waits(cluster: Cluster) -> None:
    """The last one counts, and one without limits starts at once."""
    plan(cluster, dict.fromkeys(PARTITIONS, (2,)))
    assert plan(cluster, {THIRD: [3]}, None) == {THIRD: ErrorCode.NONE}
    assert list(cluster.listed()) == [FIRST, THIRD]
    assert waiting(cluster) == {SECOND}
    assert cluster.recorded(THIRD)[0] == [3, 1]


def test_a_move_waits_for_its_broker_to_come_back(cluster: Cluster, zookeeper: ZooKeeper) -> None:
    """The others go on, and the plan stays."""
    plan(cluster, {FIRST: [2], SECOND: [3], THIRD: [2]})
    cluster.kill(3)
    cluster.brokers[1].wait_for_brokers(2)
    finish(cluster, FIRST)
    assert list(cluster.listed()) == [THIRD]
    finish(cluster, THIRD)
    assert waiting(cluster) == {SECOND}
    returned = Broker(zookeeper, 3)
    try:
        returned.wait_for_brokers(3)
        wait_for(returned, lambda fake: SECOND in fake.partitions)
        assert list(cluster.listed()) == [SECOND]
    finally:
        returned.stop()


def test_a_throttle_lasts_as_long_as_the_plan(cluster: Cluster) -> None:
    """Topics name the replicas, brokers have the rate, and other options stay as they are."""
    plan(cluster, {FIRST: [2], SECOND: [2]}, MoveLimits(1, 12345))
    configs = cluster.brokers[1].cluster
    topic = configs.entity_config("topics", "orders")
    assert topic["leader.replication.throttled.replicas"] == "0:1,1:1"
    assert topic["follower.replication.throttled.replicas"] == "0:2,1:2"
    for broker in ("1", "2"):
        assert configs.entity_config("brokers", broker)["follower.replication.throttled.rate"] == "12345"
    finish(cluster, FIRST)
    assert configs.entity_config("topics", "orders") == topic
    finish(cluster, SECOND)
    assert configs.entity_config("topics", "orders") == {}
    assert configs.entity_config("brokers", "1") == configs.entity_config("brokers", "2") == {}


def test_what_cannot_move_is_refused_and_the_rest_goes_on(cluster: Cluster) -> None:
    """Each partition has its own answer."""
    unknown = TopicPartition("nothing", 0)
    answers = plan(cluster, {FIRST: [2], SECOND: [9], unknown: [2]})
    assert answers == {
        FIRST: ErrorCode.NONE,
        SECOND: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        unknown: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert list(cluster.listed()) == [FIRST]
    assert not waiting(cluster)


def test_a_deleted_topic_leaves_the_plan(cluster: Cluster) -> None:
    """Nobody waits for it."""
    other = TopicPartition("other", 0)
    cluster.brokers[1].cluster.create_topic(TopicSpec("other", assignment={0: [1]}))
    wait_for(cluster.brokers[1], lambda fake: fake.leader("other") == 1)
    plan(cluster, {FIRST: [2], other: [2]})
    cluster.brokers[1].cluster.delete_topic("other")
    cluster.brokers[1].wait_until_gone(znodes.topic_path("other"))
    finish(cluster, FIRST)
    assert not has_plan(cluster)


def test_a_plan_that_does_not_fit_into_a_node_is_refused(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything has changed."""
    monkeypatch.setattr("ottla.broker.controller.reassignments.move_queue._NODE_BYTES_MAX", 100)
    outcome = cluster.ask(lambda term: term.moves.alter(dict.fromkeys(PARTITIONS, (2,)), ONE_AT_A_TIME))
    assert isinstance(outcome, KafkaError)
    assert outcome.code is ErrorCode.INVALID_REQUEST
    assert "a plan of 3 partitions is too large" in str(outcome)
    assert not waiting(cluster)


@pytest.mark.parametrize("writes", [1, 2, 3, *(pytest.param(count, marks=pytest.mark.long) for count in range(4, 16))])
def test_a_plan_survives_a_controller_that_dies_after_any_write(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    """The next one has only what is in ZooKeeper: leaders, moves and the throttle come to the same end."""
    for partition in PARTITIONS:
        cluster.alter(partition, [1, 2])
        finish(cluster, partition)
    stop = Stop(monkeypatch)
    stop.left = writes
    targets = dict.fromkeys(PARTITIONS, (3, 2))
    while not all(cluster.recorded(each)[0] == [3, 2] for each in PARTITIONS) or has_plan(cluster):
        # A client whose request was not answered asks again.
        if not has_plan(cluster) and not cluster.do(lambda term: term.moves.listing()):
            cluster.ask(lambda term: term.moves.alter(targets, MoveLimits(1, 12345)))
        for partition in cluster.listed():
            cluster.catch_up(partition)
    assert [cluster.state(each).leader for each in PARTITIONS] == [3, 3, 3]
    configs = cluster.brokers[1].cluster
    assert not configs.entity_config("topics", "orders")
    assert not any(configs.entity_config("brokers", str(broker)) for broker in cluster.brokers)
