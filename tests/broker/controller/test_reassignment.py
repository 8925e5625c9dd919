"""Moving partitions: ZooKeeper and controllers are real, and brokers that only listen hear what they say."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.broker.controller.brokers import Broker, brokers
from tests.broker.controller.reassigning import Cluster, wait_for
from tests.kit.zookeeper import ZooKeeper

from ottla.broker.cluster import znodes
from ottla.broker.cluster.topics import TopicSpec
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition

ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def cluster(zookeeper: ZooKeeper) -> Iterator[Cluster]:
    """Three brokers, of which 1 is the controller and the only one with a replica of a topic."""
    with brokers(zookeeper, 1, 2, 3) as started:
        cluster = Cluster(started)
        started[0].cluster.create_topic(TopicSpec("orders", assignment={0: [1]}))
        started[0].fake.wait_for(lambda: started[0].fake.leader("orders") == 1)
        yield cluster


def test_added_replicas_are_told_before_anything_is_removed(cluster: Cluster) -> None:
    """Phase A: the node has both lists, the epoch rises, old and new replicas know all of each other."""
    assert cluster.alter(ORDERS, [2, 3]) is ErrorCode.NONE

    assert cluster.recorded(ORDERS) == ([2, 3, 1], [2, 3], [1])
    assert cluster.listed() == {ORDERS: ([2, 3, 1], [2, 3], [1])}
    for broker in cluster.brokers.values():
        wait_for(broker, lambda fake: ORDERS in fake.partitions and fake.partitions[ORDERS].leader_epoch == 1)
        told = broker.fake.partitions[ORDERS]
        assert (told.leader, told.isr, told.replicas) == (1, [1], [2, 3, 1])
        assert (told.adding_replicas, told.removing_replicas) == ([2, 3], [1])
        assert not broker.fake.deleted
    assert cluster.brokers[2].fake.partitions[ORDERS].is_new


def test_the_origin_is_removed_when_the_whole_target_is_in_sync(cluster: Cluster) -> None:
    """Phase B: one of the target leads, the others leave the ISR and delete their logs."""
    cluster.alter(ORDERS, [2, 3])
    cluster.catch_up(ORDERS, 1, 2)
    assert cluster.recorded(ORDERS) == ([2, 3, 1], [2, 3], [1])
    assert not cluster.brokers[1].fake.deleted

    cluster.catch_up(ORDERS, 1, 2, 3)
    cluster.wait_until_done(ORDERS)
    assert cluster.recorded(ORDERS) == ([2, 3], [], [])
    state = cluster.state(ORDERS)
    assert (state.leader, sorted(state.isr)) == (2, [2, 3])
    assert cluster.brokers[1].fake.deleted == {ORDERS}
    told = cluster.brokers[3].fake.partitions[ORDERS]
    assert (told.leader, told.replicas, told.adding_replicas, told.removing_replicas) == (2, [2, 3], [], [])
    metadata = cluster.brokers[1].fake.metadata.snapshot.partition("orders", 0)
    assert metadata is not None
    assert (metadata.leader, metadata.replicas) == (2, [2, 3])


def test_a_leader_that_belongs_to_the_target_stays(cluster: Cluster) -> None:
    """More replicas, and then fewer."""
    cluster.alter(ORDERS, [3, 1])
    cluster.catch_up(ORDERS)
    cluster.wait_until_done(ORDERS)
    assert cluster.recorded(ORDERS) == ([3, 1], [], [])
    assert cluster.state(ORDERS).leader == 1

    assert cluster.alter(ORDERS, [1]) is ErrorCode.NONE
    cluster.wait_until_done(ORDERS)
    assert cluster.recorded(ORDERS) == ([1], [], [])
    assert cluster.state(ORDERS).isr == [1]
    assert cluster.brokers[3].fake.deleted == {ORDERS}


def test_another_order_takes_effect_at_once(cluster: Cluster) -> None:
    """No data moves, so nothing is waited for."""
    cluster.alter(ORDERS, [1, 2])
    cluster.catch_up(ORDERS)
    cluster.wait_until_done(ORDERS)

    assert cluster.alter(ORDERS, [2, 1]) is ErrorCode.NONE
    assert cluster.recorded(ORDERS) == ([2, 1], [], [])
    assert not cluster.listed()


def test_a_cancelled_move_goes_back_to_the_origin(cluster: Cluster) -> None:
    """The added replicas are deleted, and nothing is listed any more."""
    cluster.alter(ORDERS, [2, 3])
    cluster.catch_up(ORDERS, 1, 2)

    assert cluster.alter(ORDERS, None) is ErrorCode.NONE
    cluster.wait_until_done(ORDERS)
    assert cluster.recorded(ORDERS) == ([1], [], [])
    assert cluster.state(ORDERS).isr == [1]
    assert cluster.brokers[2].fake.deleted == cluster.brokers[3].fake.deleted == {ORDERS}
    assert cluster.alter(ORDERS, None) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_a_move_can_be_replaced_by_another(cluster: Cluster) -> None:
    """What only the first one wanted is deleted at once; the origin stays until the second one is in sync."""
    cluster.alter(ORDERS, [2])
    assert cluster.alter(ORDERS, [3]) is ErrorCode.NONE
    cluster.brokers[2].fake.wait_for(lambda: cluster.brokers[2].fake.deleted)
    assert not cluster.brokers[1].fake.deleted
    assert cluster.state(ORDERS).leader == 1

    cluster.catch_up(ORDERS, 1, 3)
    cluster.wait_until_done(ORDERS)
    assert cluster.recorded(ORDERS) == ([3], [], [])
    assert cluster.brokers[1].fake.deleted == {ORDERS}


def test_a_replica_that_was_being_deleted_can_be_wanted_again(cluster: Cluster) -> None:
    """It is told to delete first, and to copy then."""
    fake = cluster.brokers[2].fake
    cluster.alter(ORDERS, [2])
    cluster.alter(ORDERS, [3])
    assert cluster.alter(ORDERS, [2]) is ErrorCode.NONE
    fake.wait_for(lambda: fake.deleted)
    cluster.catch_up(ORDERS, 1, 2)
    cluster.wait_until_done(ORDERS)

    assert cluster.recorded(ORDERS) == ([2], [], [])
    assert fake.partitions[ORDERS].leader == 2


def test_the_last_in_sync_replica_is_never_deleted(cluster: Cluster) -> None:
    """When the origin is dead and only an added replica has the records, to cancel waits for the origin."""
    cluster.alter(ORDERS, [2, 3])
    cluster.catch_up(ORDERS, 1, 2)
    cluster.kill(1)
    cluster.brokers[3].fake.wait_for(lambda: cluster.brokers[3].fake.leader("orders") == 2)

    assert cluster.alter(ORDERS, None) is ErrorCode.NONE
    state = cluster.state(ORDERS)
    assert (state.leader, state.isr) == (2, [2])
    assert not cluster.brokers[2].fake.deleted
    assert cluster.listed()[ORDERS] == ([1, 2, 3], [2, 3], [2, 3])


@pytest.mark.parametrize(
    ("partition", "target", "code"),
    [
        (ORDERS, [], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (ORDERS, [2, 2], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (ORDERS, [-1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (ORDERS, [1, 9], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (ORDERS, None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        (TopicPartition("orders", 1), [2], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TopicPartition("nothing", 0), [2], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TopicPartition("nothing", 0), None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_what_cannot_be_done_is_refused(
    cluster: Cluster, partition: TopicPartition, target: list[int] | None, code: ErrorCode
) -> None:
    """Each with its error, and nothing is written."""
    assert cluster.alter(partition, target) is code
    assert cluster.recorded(ORDERS) == ([1], [], [])


def test_a_dead_broker_does_not_hold_up_its_own_replacement(cluster: Cluster) -> None:
    """What it has to delete is not waited for."""
    cluster.alter(ORDERS, [1, 2])
    cluster.catch_up(ORDERS)
    cluster.wait_until_done(ORDERS)
    cluster.kill(1)
    cluster.brokers[2].fake.wait_for(lambda: cluster.brokers[2].fake.leader("orders") == 2)

    assert cluster.alter(ORDERS, [2, 3]) is ErrorCode.NONE
    cluster.catch_up(ORDERS, 2, 3)
    assert cluster.recorded(ORDERS) == ([2, 3], [], [])
    assert not cluster.listed()


def test_a_move_is_listed_until_the_old_replica_is_deleted(cluster: Cluster) -> None:
    """So that another controller would find it; a broker that may not have heard is told again."""
    fake = cluster.brokers[2].fake
    cluster.alter(ORDERS, [1, 2])
    cluster.catch_up(ORDERS)
    cluster.wait_until_done(ORDERS)
    with fake._changed:
        # The broker hears nothing and answers nothing.
        assert cluster.alter(ORDERS, [1]) is ErrorCode.NONE
        assert cluster.listed() == {ORDERS: ([1, 2], [2], [2])}
        assert cluster.recorded(ORDERS) == ([1, 2], [], [2])
        assert cluster.state(ORDERS).isr == [1]
        cluster.do(lambda term: term.reassignments.brokers_joined([2]))

    cluster.wait_until_done(ORDERS)
    assert cluster.recorded(ORDERS) == ([1], [], [])
    assert fake.deleted == {ORDERS}


def test_a_broker_that_dies_before_it_has_deleted_is_not_waited_for(cluster: Cluster) -> None:
    """The partition has moved all the same."""
    cluster.alter(ORDERS, [1, 2])
    cluster.catch_up(ORDERS)
    cluster.wait_until_done(ORDERS)
    with cluster.brokers[2].fake._changed:
        cluster.alter(ORDERS, [1])
        assert cluster.listed()
        cluster.kill(2)
        cluster.wait_until_done(ORDERS)
    assert cluster.recorded(ORDERS) == ([1], [], [])


def test_a_move_goes_on_when_the_target_comes_back(cluster: Cluster, zookeeper: ZooKeeper) -> None:
    """It is told all again, in a new epoch."""
    cluster.alter(ORDERS, [3])
    cluster.brokers[3].fake.wait_for(lambda: ORDERS in cluster.brokers[3].fake.partitions)
    cluster.kill(3)
    cluster.brokers[1].wait_for_brokers(2)
    again = Broker(zookeeper, 3)
    cluster.brokers[3] = again
    try:
        again.fake.wait_for(lambda: ORDERS in again.fake.partitions)
        again.fake.wait_for(lambda: again.fake.partitions[ORDERS].leader_epoch >= 2)
        cluster.catch_up(ORDERS, 1, 3)
        cluster.wait_until_done(ORDERS)
        assert cluster.recorded(ORDERS) == ([3], [], [])
    finally:
        again.stop()


def test_a_topic_is_not_deleted_before_its_partitions_have_moved(cluster: Cluster) -> None:
    """And one that is to be deleted moves no more."""
    cluster.alter(ORDERS, [2])
    first = cluster.brokers[1]
    first.cluster.delete_topic("orders")
    # An event after the mark proves that the controller has seen it.
    first.cluster.create_topic(TopicSpec("later", assignment={0: [1]}))
    first.fake.wait_for(lambda: first.fake.leader("later") == 1)
    assert cluster.alter(ORDERS, [3]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert first.zookeeper.exists(znodes.topic_path("orders")) is not None
    assert not cluster.brokers[1].fake.deleted

    cluster.catch_up(ORDERS, 1, 2)
    for broker in (1, 2):
        wait_for(cluster.brokers[broker], lambda fake: fake.deleted == {ORDERS})
    assert first.membership._wait_until_gone(znodes.delete_topic_path("orders"), 30)


def test_a_partition_that_never_had_a_leader_gets_one_at_its_target(cluster: Cluster) -> None:
    """There is nothing to copy, so its live replicas are in sync at once."""
    first = cluster.brokers[1]
    content = znodes.TopicNode(topic_id="AAAAAAAAAAAAAAAAAAAAAQ", partitions={0: [9]}).encode()
    first.zookeeper.create(znodes.topic_path("lost"), content)
    lost = TopicPartition("lost", 0)
    first.cluster.create_topic(TopicSpec("later", assignment={0: [1]}))
    first.fake.wait_for(lambda: first.fake.leader("later") == 1)

    assert cluster.alter(lost, [2, 3]) is ErrorCode.NONE
    assert cluster.recorded(lost) == ([2, 3], [], [])
    assert cluster.state(lost).isr == [2, 3]


def test_old_tools_ask_through_a_node(cluster: Cluster) -> None:
    """What is done or impossible is taken out of it, and the node goes when nothing is left."""
    first = cluster.brokers[1]
    first.cluster.create_topic(TopicSpec("copied", assignment={0: [1]}))
    first.fake.wait_for(lambda: first.fake.leader("copied") == 1)
    asked = [
        znodes.ReassignedPartition(topic=topic, partition=0, replicas=target)
        for topic, target in (("orders", [2]), ("copied", [3]), ("nothing", [1]))
    ]
    first.zookeeper.create(znodes.REASSIGNMENT, znodes.ReassignmentNode(partitions=asked).encode())
    for broker in (2, 3):
        wait_for(cluster.brokers[broker], lambda fake: fake.partitions)

    cluster.catch_up(ORDERS, 1, 2)
    cluster.wait_until_done(ORDERS)
    left = znodes.ReassignmentNode.decode(first.zookeeper.read(znodes.REASSIGNMENT).data, znodes.REASSIGNMENT)
    assert [(each.topic, each.replicas) for each in left.partitions] == [("copied", [3])]

    cluster.catch_up(TopicPartition("copied", 0), 1, 3)
    cluster.wait_until_done(TopicPartition("copied", 0))
    assert first.zookeeper.exists(znodes.REASSIGNMENT) is None
    # The next node is seen too.
    again = znodes.ReassignmentNode(partitions=[znodes.ReassignedPartition(topic="orders", partition=0, replicas=[3])])
    first.zookeeper.create(znodes.REASSIGNMENT, again.encode())
    cluster.brokers[3].fake.wait_for(lambda: ORDERS in cluster.brokers[3].fake.partitions)
    assert cluster.recorded(ORDERS) == ([3, 2], [3], [2])


def test_a_request_overrides_the_node_of_the_old_tools(cluster: Cluster) -> None:
    """A controller that takes over does not find the older target there."""
    first = cluster.brokers[1]
    asked = [znodes.ReassignedPartition(topic="orders", partition=0, replicas=[2])]
    first.zookeeper.create(znodes.REASSIGNMENT, znodes.ReassignmentNode(partitions=asked).encode())
    cluster.brokers[2].fake.wait_for(lambda: ORDERS in cluster.brokers[2].fake.partitions)

    cluster.alter(ORDERS, [3])
    assert first.zookeeper.exists(znodes.REASSIGNMENT) is None
    assert cluster.recorded(ORDERS)[0][:2] == [3, 1]
