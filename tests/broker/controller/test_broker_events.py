"""Brokers that lose replicas, and brokers that change their address."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.broker.controller.brokers import Broker, brokers
from tests.kit.zookeeper import ZooKeeper

from ottla.broker.cluster import znodes
from ottla.broker.cluster.topics import TopicSpec
from ottla.broker.controller.office import Office
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrRequest

ORDERS = TopicPartition("orders", 0)


def offline_replicas(broker: Broker) -> list[int]:
    """The offline replicas of the topic, as a broker knows them."""
    partition = broker.fake.metadata.snapshot.partition(*ORDERS)
    return [] if partition is None else list(partition.offline_replicas)


def times_told(broker: Broker) -> int:
    """How often a broker was told its part in the topic."""
    return sum(
        topic.topic_name == ORDERS.topic
        for request in broker.fake.requests
        if isinstance(request, LeaderAndIsrRequest)
        for topic in request.topic_states
    )


def make_topic(first: Broker, second: Broker) -> None:
    """Make a topic that broker 2 leads and broker 1 follows."""
    first.cluster.create_topic(TopicSpec("orders", assignment={0: [2, 1]}))
    first.fake.wait_for(lambda: first.fake.leader("orders") == 2)
    second.fake.wait_for(lambda: second.fake.leader("orders") == 2)


def test_a_leader_with_a_damaged_log_may_follow(zookeeper: ZooKeeper) -> None:
    """Another one leads; the broker is offered to follow it, accepts, and its replica is online again."""
    with brokers(zookeeper, 1, 2) as (first, second):
        make_topic(first, second)
        second.fake.cannot_lead = {ORDERS}
        second.cluster.report_log_dir_failure()

        second.fake.wait_for(lambda: second.fake.partitions[ORDERS].leader == 1)
        first.fake.wait_for(lambda: first.fake.leader("orders") == 1 and offline_replicas(first) == [])
        assert first.do(lambda term: term.context.offline_replicas) == set()
        path = znodes.state_path(*ORDERS)
        state = znodes.PartitionStateNode.decode(first.zookeeper.read(path).data, path)
        assert (state.leader, state.isr) == (1, [1])


def test_a_replica_that_refuses_the_offer_stays_offline(zookeeper: ZooKeeper) -> None:
    """It is offered once, and again when its broker tells of its disks or registers anew."""
    with brokers(zookeeper, 1, 2) as (first, second):
        make_topic(first, second)
        before = times_told(second)
        second.fake.lost = {ORDERS}
        second.cluster.report_log_dir_failure()
        # Asked, and then offered.
        second.fake.wait_for(lambda: times_told(second) == before + 2)
        first.fake.wait_for(lambda: offline_replicas(first) == [2])
        # Events that have nothing to do with it bring no other offer.
        first.cluster.create_topic(TopicSpec("later", assignment={0: [2, 1]}))
        second.fake.wait_for(lambda: second.fake.leader("later") == 2)
        assert times_told(second) == before + 2

        second.fake.lost = set()
        second.cluster.report_log_dir_failure()
        first.fake.wait_for(lambda: offline_replicas(first) == [])


def test_the_only_replica_leads_again_when_its_disk_is_back(zookeeper: ZooKeeper) -> None:
    """Nobody else could lead, so it waits for the word of its broker."""
    with brokers(zookeeper, 1, 2) as (first, second):
        first.cluster.create_topic(TopicSpec("orders", assignment={0: [2]}))
        first.fake.wait_for(lambda: first.fake.leader("orders") == 2)
        second.fake.lost = {ORDERS}
        second.cluster.report_log_dir_failure()
        first.fake.wait_for(lambda: first.fake.leader("orders") == -1)
        second.fake.lost = set()
        second.cluster.report_log_dir_failure()
        first.fake.wait_for(lambda: first.fake.leader("orders") == 2)


def test_another_address_reaches_all_brokers(zookeeper: ZooKeeper) -> None:
    """Under the same epoch; and the rack with it."""
    with brokers(zookeeper, 1, 2) as (first, second):
        path = znodes.broker_path(2)
        node = znodes.BrokerNode.decode(second.zookeeper.read(path).data, path)
        changed = znodes.BrokerNode(
            host=node.host,
            port=node.port,
            endpoints=node.endpoints,
            listener_security_protocol_map=node.listener_security_protocol_map,
            rack="cellar",
        )
        second.zookeeper.write(path, changed.encode())
        first.fake.wait_for(lambda: first.fake.metadata.snapshot.brokers[2].rack == "cellar")
        second.fake.wait_for(lambda: second.fake.metadata.snapshot.brokers[2].rack == "cellar")


def test_a_role_that_a_broker_could_not_take_is_offered_again(
    zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Less and less often, and not any more when it was taken; others hear nothing of it."""
    waits: list[float] = []
    post_after = Office.post_after

    def post_at_once(office: Office, delay_seconds: float, handler: Callable[..., None], *arguments: object) -> None:
        if handler.__name__ != "_offer_again":
            post_after(office, delay_seconds, handler, *arguments)
            return
        waits.append(delay_seconds)
        if len(waits) == 4:
            second.fake.failing.clear()
        office.post(handler, *arguments)

    monkeypatch.setattr(Office, "post_after", post_at_once)
    with brokers(zookeeper, 1, 2) as (first, second):
        second.fake.failing = {ORDERS}
        make_topic(first, second)
        second.fake.wait_for(lambda: times_told(second) == 5)
        # An event behind the last answer.
        first.cluster.create_topic(TopicSpec("later", assignment={0: [2]}))
        second.fake.wait_for(lambda: second.fake.leader("later") == 2)
        assert (times_told(second), times_told(first)) == (5, 1)
        assert waits == [1.0, 2.0, 4.0, 8.0]
        assert offline_replicas(first) == []
