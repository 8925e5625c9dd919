"""ElectLeaders, with a real controller over a real ZooKeeper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from tests.broker.controller.brokers import Broker, brokers, lose_the_last_in_sync
from tests.broker.handlers.small_cluster import every_version
from tests.kit.zookeeper import ZooKeeper

from ottla.broker.cluster import znodes
from ottla.broker.cluster.topics import TopicSpec
from ottla.broker.controller.isr_updates import IsrUpdate
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions

PREFERRED, UNCLEAN = 0, 1

Rows = dict[tuple[str, int], int]


def ask(
    broker: Broker,
    partitions: Mapping[str, Sequence[int]] | None,
    *,
    version: int = 2,
    election_type: int = PREFERRED,
    timeout_ms: int = 30_000,
) -> Any:
    """Ask for elections."""
    named = None
    if partitions is not None:
        named = [TopicPartitions(topic=topic, partitions=list(indexes)) for topic, indexes in partitions.items()]
    body = ElectLeadersRequest(election_type=election_type, topic_partitions=named, timeout_ms=timeout_ms)
    return broker.ask(Api.ELECT_LEADERS, version, body)


def rows(response: Any) -> Rows:
    """The error code of each partition."""
    return {
        (topic.topic, row.partition_id): row.error_code
        for topic in response.replica_election_results
        for row in topic.partition_result
    }


def led_by_the_second_replica(zookeeper: ZooKeeper, first: Broker, second: Broker) -> Broker:
    """Make a topic of which the preferred leader was away; return its new life, in sync again."""
    first.cluster.create_topic(TopicSpec("orders", assignment={0: [2, 1], 1: [1, 2]}))
    first.fake.wait_for(lambda: first.fake.leader("orders") == 2)
    second.zookeeper.close()
    first.fake.wait_for(lambda: first.fake.leader("orders") == 1)
    again = Broker(zookeeper, 2)
    first.wait_for_brokers(2)
    return again


def join_isr(controller: Broker, partition: int, isr: Sequence[int]) -> None:
    """Have the leader, broker 1, take others into the ISR of a partition."""
    path = znodes.state_path("orders", partition)
    node = controller.zookeeper.read(path)
    epoch = znodes.PartitionStateNode.decode(node.data, path).leader_epoch
    update = IsrUpdate(epoch, node.stat.version, tuple((broker, -1) for broker in isr))
    updates = {TopicPartition("orders", partition): update}
    outcomes = controller.do(lambda term: term.isr_updates.update(1, controller.membership.broker_epoch, updates))
    assert not isinstance(outcomes[TopicPartition("orders", partition)], ErrorCode)


@pytest.mark.parametrize("version", every_version(Api.ELECT_LEADERS))
def test_the_preferred_replica_leads_when_it_is_in_sync(zookeeper: ZooKeeper, version: int) -> None:
    """Before that it is not available; the answer comes when the metadata shows the leader."""
    with brokers(zookeeper, 1, 2) as (first, second):
        again = led_by_the_second_replica(zookeeper, first, second)
        try:
            early = rows(ask(first, {"orders": [0]}, version=version))
            assert early == {("orders", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
            join_isr(first, 0, [1, 2])

            response = ask(first, {"orders": [0, 1, 7], "nothing": [0]}, version=version)

            assert first.fake.leader("orders") == 2
            assert response.error_code == ErrorCode.NONE
            assert rows(response) == {
                ("orders", 0): ErrorCode.NONE,
                ("orders", 1): ErrorCode.ELECTION_NOT_NEEDED,
                ("orders", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ("nothing", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            }
            assert first.controller.stats.unclean_elections == 0
        finally:
            again.stop()


def test_of_all_partitions_those_with_nothing_to_do_are_left_out(zookeeper: ZooKeeper) -> None:
    """Null stands for all."""
    with brokers(zookeeper, 1, 2) as (first, second):
        again = led_by_the_second_replica(zookeeper, first, second)
        try:
            join_isr(first, 0, [1, 2])
            assert rows(ask(first, None)) == {("orders", 0): ErrorCode.NONE}
            assert rows(ask(first, None)) == {}
        finally:
            again.stop()


def test_an_unclean_election_gives_a_leader_to_a_partition_without(zookeeper: ZooKeeper) -> None:
    """It is alone in the ISR, and recovering; with a leader, or without a live replica, there is no such election."""
    with brokers(zookeeper, 1, 2) as (first, second):
        first.cluster.create_topic(TopicSpec("alone", assignment={0: [2]}))
        lose_the_last_in_sync(first, second)

        assert rows(ask(first, {"orders": [0]})) == {("orders", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
        assert rows(ask(first, {"orders": [0], "alone": [0]}, election_type=UNCLEAN)) == {
            ("orders", 0): ErrorCode.NONE,
            ("alone", 0): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        }

        path = znodes.state_path("orders", 0)
        state = znodes.PartitionStateNode.decode(first.zookeeper.read(path).data, path)
        assert (state.leader, state.isr, state.leader_recovery_state) == (1, [1], 1)
        assert first.controller.stats.unclean_elections == 1
        again = rows(ask(first, {"orders": [0]}, election_type=UNCLEAN))
        assert again == {("orders", 0): ErrorCode.ELECTION_NOT_NEEDED}


def test_without_time_the_answer_says_what_is_known_now(zookeeper: ZooKeeper) -> None:
    """A leader that the metadata does not show yet is late."""
    with brokers(zookeeper, 1, 2) as (first, second):
        again = led_by_the_second_replica(zookeeper, first, second)
        try:
            join_isr(first, 0, [1, 2])
            (code,) = rows(ask(first, {"orders": [0]}, timeout_ms=0)).values()
            assert code in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT)
            first.fake.wait_for(lambda: first.fake.leader("orders") == 2)
        finally:
            again.stop()


def test_refusals(zookeeper: ZooKeeper) -> None:
    """A topic that is going, a type that is none, a controller that is none."""
    with brokers(zookeeper, 1, 2) as (first, second):
        first.cluster.create_topic(TopicSpec("orders", assignment={0: [1, 2]}))
        first.fake.wait_for(lambda: first.fake.leader("orders") == 1)
        first.do(lambda term: term.context.deleting.add("orders"))
        assert rows(ask(first, {"orders": [0]})) == {("orders", 0): ErrorCode.INVALID_TOPIC_EXCEPTION}
        odd = ask(first, {"orders": [0]}, election_type=5)
        assert (odd.error_code, rows(odd)) == (ErrorCode.INVALID_REQUEST, {("orders", 0): ErrorCode.INVALID_REQUEST})
        elsewhere = ask(second, {"orders": [0]})
        assert elsewhere.error_code == ErrorCode.NOT_CONTROLLER
        assert rows(elsewhere) == {("orders", 0): ErrorCode.NOT_CONTROLLER}
