"""Groups of the new protocol whose coordinator dies: members keep what they have, and read on."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from tests.interop.consumer_protocol_members import (
    DEADLINE_S,
    PARTITIONS,
    Member,
    api,
    poll_until,
    produce,
    share,
)
from tests.kit.broker_process import BrokerProcess, topic_name
from tests.kit.waiting import until
from tests.kit.zookeeper import ZooKeeper, ZooKeeperServer


def test_members_go_on_when_their_coordinator_dies(zookeeper_server: ZooKeeperServer, tmp_path: Path) -> None:
    """Another broker has all that was stored: nobody gives anything back, and nothing is read twice after a commit."""
    connect, group = ZooKeeper(zookeeper_server).connect, f"group-{uuid.uuid4()}"
    options = (
        *("offsets.topic.replication.factor=3", "offsets.topic.num.partitions=1", "zookeeper.session.timeout.ms=3000"),
        *("group.consumer.min.heartbeat.interval.ms=200", "group.consumer.heartbeat.interval.ms=200"),
        *("default.replication.factor=3", "min.insync.replicas=2"),
    )
    brokers = [BrokerProcess(tmp_path / str(number), connect, *options, broker_id=number) for number in range(1, 4)]
    with ExitStack() as stack:
        for each in brokers:
            stack.enter_context(each)
        everybody = ",".join(each.bootstrap for each in brokers)
        topic = create_replicated(brokers[0], topic_name())
        produce(brokers[0], topic, 0, 40)
        a, b = (Member(brokers[0], group, topic, bootstrap_servers=everybody) for _ in range(2))
        stack.callback(a.close)
        stack.callback(b.close)
        poll_until(lambda: share(topic, a, b) and len(a.values + b.values) >= 40, a, b)
        for member in (a, b):
            member.consumer.commit(asynchronous=False)
        events = (list(a.events), list(b.events))

        coordinator = leader_of(brokers[0], "__consumer_offsets")
        dead = next(each for each in brokers if each.broker_id == coordinator)
        dead.kill()
        alive = next(each for each in brokers if each is not dead)
        produce(alive, topic, 40, 40)
        poll_until(lambda: len(set(a.values + b.values)) == 80, a, b)
        poll_until(lambda: leader_of(alive, "__consumer_offsets") not in (-1, coordinator), a, b)
        retried(lambda: commit_all(a))
        assert (a.events, b.events) == events
        assert sorted(a.values + b.values) == list(range(80))
        c = Member(alive, group, topic)
        stack.callback(c.close)
        poll_until(lambda: share(topic, a, b, c), a, b, c)


def commit_all(member: Member) -> None:
    """Commit what was read. Nothing is left where an earlier try was done and its answer lost."""
    try:
        member.consumer.commit(asynchronous=False)
    except KafkaException as error:
        if error.args[0].code() != KafkaError._NO_OFFSET:
            raise


def create_replicated(broker: BrokerProcess, name: str) -> str:
    """Create a topic with three replicas, when there are brokers for it."""
    admin = api.AdminClient({"bootstrap.servers": broker.bootstrap})
    retried(lambda: admin.create_topics([api.NewTopic(name, PARTITIONS, 3)])[name].result(DEADLINE_S))
    return name


def leader_of(broker: BrokerProcess, topic: str) -> int:
    """Return who leads the first partition of a topic."""
    found = api.AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(topic, timeout=DEADLINE_S)
    return int(found.topics[topic].partitions[0].leader)


def retried(action: Callable[[], Any]) -> None:
    """Do something until it works."""

    def works() -> bool:
        action()
        return True

    until(works, pause_s=0.1, not_yet=KafkaException)
