"""Elections that balance calls for, that old tools ask for, and that options allow."""

from __future__ import annotations

import pytest
from tests.broker.controller.brokers import Broker, brokers, lose_the_last_in_sync
from tests.kit.zookeeper import ZooKeeper

from ottla.broker.cluster import znodes
from ottla.broker.cluster.topics import TopicSpec
from ottla.broker.controller.context import ControllerContext, RegisteredBroker, Replica, ReplicaAssignment
from ottla.broker.controller.leader_elections import imbalanced_partitions
from ottla.broker.controller.partition_states import LeaderAndIsr
from ottla.protocol.identifiers import TopicPartition

ORDERS = TopicPartition("orders", 0)
NODE = znodes.BrokerNode(host="here", port=9092)


def context(*, partitions: int, led_by_others: int) -> ControllerContext:
    """Three brokers, and a topic of which broker 1 should lead all and does not lead some."""
    made = ControllerContext(controller_id=1, epoch=1)
    made.brokers = {broker: RegisteredBroker(broker, 10, NODE) for broker in (1, 2, 3)}
    made.assignments = {"orders": {index: ReplicaAssignment((1, 2, 3)) for index in range(partitions)}}
    made.leadership = {
        TopicPartition("orders", index): LeaderAndIsr(2 if index < led_by_others else 1, 5, (1, 2), 1, 0)
        for index in range(partitions)
    }
    return made


@pytest.mark.parametrize(("partitions", "led_by_others", "given_back"), [(10, 1, 0), (10, 2, 2), (1, 1, 1), (4, 0, 0)])
def test_leadership_goes_back_when_others_lead_more_than_the_share(
    partitions: int, led_by_others: int, given_back: int
) -> None:
    """Ten percent are tolerated, and not one more."""
    found = imbalanced_partitions(context(partitions=partitions, led_by_others=led_by_others), 10)
    assert found == [TopicPartition("orders", index) for index in range(given_back)]


def test_leadership_stays_where_the_preferred_replica_could_not_have_it() -> None:
    """It is out of sync, dead, about to stop, on a failed disk; or the partition moves, or goes."""
    known = context(partitions=1, led_by_others=1)
    assert imbalanced_partitions(known, 10) == [ORDERS]
    known.shutting_down = {1}
    assert imbalanced_partitions(known, 10) == []
    known.shutting_down = set()
    known.offline_replicas = {Replica("orders", 0, 1)}
    assert imbalanced_partitions(known, 10) == []
    known.offline_replicas = set()
    known.deleting = {"orders"}
    assert imbalanced_partitions(known, 10) == []
    known.deleting = set()
    known.reassigning = {ORDERS}
    assert imbalanced_partitions(known, 10) == []
    known.reassigning = set()
    known.leadership[ORDERS] = LeaderAndIsr(2, 5, (2, 3), 1, 0)
    assert imbalanced_partitions(known, 10) == []
    known.leadership[ORDERS] = LeaderAndIsr(2, 5, (1, 2), 1, 0)
    del known.brokers[1]
    assert imbalanced_partitions(known, 10) == []


def led_by_another(first: Broker) -> None:
    """Make a topic that is not led by its preferred leader, broker 2, though that is in sync."""
    first.cluster.create_topic(TopicSpec("orders", assignment={0: [2, 1]}))
    first.fake.wait_for(lambda: first.fake.leader("orders") == 2)
    first.do(lambda term: term._office.transitions.elect([ORDERS], lambda _, state: state.led_by(1, state.isr)))
    first.fake.wait_for(lambda: first.fake.leader("orders") == 1)


def test_a_rebalance_gives_partitions_back(zookeeper: ZooKeeper) -> None:
    """As the metadata and the stats show."""
    with brokers(zookeeper, 1, 2) as (first, _second):
        led_by_another(first)
        assert first.controller.stats.preferred_imbalance == 1
        elections = first.controller.stats.elections

        assert first.do(lambda term: term.elections.rebalance()) == {ORDERS}

        first.fake.wait_for(lambda: first.fake.leader("orders") == 2)
        stats = first.controller.stats
        assert (stats.preferred_imbalance, stats.elections) == (0, elections + 1)
        assert stats.election_seconds >= stats.last_election_seconds > 0


@pytest.mark.parametrize(("enabled", "leader"), [("true", 2), ("false", 1)])
def test_the_balance_is_looked_after_where_the_option_says_so(zookeeper: ZooKeeper, enabled: str, leader: int) -> None:
    """And the next look is planned either way."""
    options = {"auto.leader.rebalance.enable": enabled, "leader.imbalance.check.interval.seconds": "1000"}
    with brokers(zookeeper, 1, 2, options=options) as (first, _second):
        led_by_another(first)
        planned = len(first.controller._schedule)
        first.do(lambda term: term.elections._check_balance())
        assert len(first.controller._schedule) == planned + 1
        assert first.do(lambda term: term.context.leadership[ORDERS].leader) == leader


def test_old_tools_ask_for_elections_with_a_node(zookeeper: ZooKeeper) -> None:
    """It is gone when they are done; what makes no sense is removed too."""
    with brokers(zookeeper, 1, 2) as (first, _second):
        led_by_another(first)
        asked = b'{"version":1,"partitions":[{"topic":"orders","partition":0},{"topic":"nothing","partition":1}]}'
        first.zookeeper.create(znodes.PREFERRED_ELECTION, asked)
        first.fake.wait_for(lambda: first.fake.leader("orders") == 2)
        first.wait_until_gone(znodes.PREFERRED_ELECTION)
        first.zookeeper.create(znodes.PREFERRED_ELECTION, b"not json")
        first.wait_until_gone(znodes.PREFERRED_ELECTION)
        assert first.controller.epoch == 1


def test_a_topic_may_allow_leaders_out_of_sync(zookeeper: ZooKeeper) -> None:
    """Where its options change, partitions without a leader get one at once."""
    with brokers(zookeeper, 1, 2) as (first, second):
        lose_the_last_in_sync(first, second)
        assert first.controller.stats.offline_partitions == 1
        config = znodes.ConfigNode(config={"unclean.leader.election.enable": "true"}).encode()
        first.zookeeper.write(znodes.config_path(znodes.TOPIC_CONFIGS, "orders"), config)

        first.controller.options_changed("other")
        first.controller.options_changed("orders")

        first.fake.wait_for(lambda: first.fake.leader("orders") == 1)
        told = first.fake.partitions[ORDERS]
        assert (told.isr, told.leader_recovery_state) == ([1], 1)
        stats = first.controller.stats
        assert (stats.unclean_elections, stats.offline_partitions) == (1, 0)


def test_the_brokers_option_counts_where_the_topic_has_none(zookeeper: ZooKeeper) -> None:
    """Then the election follows the loss of the last replica in sync without being asked for."""
    with brokers(zookeeper, 1, 2, options={"unclean.leader.election.enable": "true"}) as (first, second):
        first.do(lambda term: term.context.shutting_down.add(1))
        first.cluster.create_topic(TopicSpec("orders", assignment={0: [2, 1]}))
        first.fake.wait_for(lambda: first.fake.leader("orders") == 2)
        first.zookeeper.delete(znodes.config_path(znodes.TOPIC_CONFIGS, "orders"))
        first.do(lambda term: term.context.shutting_down.discard(1))
        second.zookeeper.close()
        first.fake.wait_for(lambda: first.fake.leader("orders") == 1)


def test_stats_out_of_office_are_zero_but_for_the_counters(zookeeper: ZooKeeper) -> None:
    """And in office they count what there is."""
    with brokers(zookeeper, 1, 2) as (first, second):
        first.cluster.create_topic(TopicSpec("orders", assignment={0: [1], 1: [2]}))
        first.fake.wait_for(lambda: first.fake.leader("orders", 1) == 2)
        stats = first.controller.stats
        assert (stats.active, stats.epoch, stats.live_brokers, stats.topics, stats.partitions) == (True, 1, 2, 1, 2)
        other = second.controller.stats
        assert (other.active, other.epoch, other.live_brokers, other.topics, other.partitions) == (False, -1, 0, 0, 0)
