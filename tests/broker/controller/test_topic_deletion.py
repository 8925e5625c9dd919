"""The end of a deletion: what if the topic is created again at that very moment."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from tests.broker.controller.brokers import Broker, brokers
from tests.kit.zookeeper import ZooKeeper

from ottla.broker.cluster import znodes
from ottla.broker.cluster.operations import MultiError, NodeStat, Operation
from ottla.broker.cluster.topics import TopicSpec

CONFIG_PATH = znodes.config_path(znodes.TOPIC_CONFIGS, "orders")
TOPIC_PATH = znodes.topic_path("orders")
MARK_PATH = znodes.delete_topic_path("orders")

Outcomes = list[list[NodeStat | None] | MultiError]


def after_each_write(broker: Broker, monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Do something between any two writes of a controller; its own writes count for nothing."""
    multi_many = broker.zookeeper.multi_many
    acting = False

    def write_and_act(multis: Sequence[Sequence[Operation]]) -> Outcomes:
        nonlocal acting
        outcomes = multi_many(multis)
        if not acting:
            acting = True
            try:
                act()
            finally:
                acting = False
        return outcomes

    monkeypatch.setattr(broker.zookeeper, "multi_many", write_and_act)


@pytest.mark.parametrize("partition_count", [1, 60], ids=["one multi", "several multis"])
def test_a_topic_that_is_created_again_at_once_keeps_its_options(
    zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch, partition_count: int
) -> None:
    """As soon as the name is free, nothing of the old topic is left that could be taken from the new one."""
    with brokers(zookeeper, 1) as (broker,):
        broker.cluster.create_topic(TopicSpec("orders", partition_count, 1, configs={"retention.ms": "1000"}))
        broker.fake.wait_for(lambda: broker.fake.leader("orders", partition_count - 1) == 1)
        created: list[bytes] = []

        def create_again() -> None:
            if not created and broker.zookeeper.exists(TOPIC_PATH) is None:
                topic = TopicSpec("orders", 1, 1, configs={"retention.ms": "2000"})
                created.append(broker.cluster.create_topic(topic).id)

        after_each_write(broker, monkeypatch, create_again)
        broker.cluster.delete_topic("orders")
        broker.fake.wait_for(lambda: created and broker.fake.metadata.snapshot.topic_by_id(created[0]) is not None)
        broker.do(lambda _term: None)
        config = broker.zookeeper.read_or_none(CONFIG_PATH)
        assert config is not None, "the options of the new topic are gone"
        assert config.data == b'{"version":1,"config":{"retention.ms":"2000"}}'
        assert broker.zookeeper.exists(MARK_PATH) is None


def test_a_deletion_whose_last_answer_was_lost_spares_the_next_topic(
    zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write is sent again when the connection is back; the topic of that name has another id by then."""
    with brokers(zookeeper, 1) as (broker,):
        broker.cluster.create_topic(TopicSpec("orders", 1, 1))
        broker.fake.wait_for(lambda: broker.fake.leader("orders") == 1)
        multi_many = broker.zookeeper.multi_many
        created: list[bytes] = []

        def write_twice(multis: Sequence[Sequence[Operation]]) -> Outcomes:
            outcomes = multi_many(multis)
            if created or broker.zookeeper.exists(TOPIC_PATH) is not None:
                return outcomes
            created.append(b"")
            created.append(broker.cluster.create_topic(TopicSpec("orders", 1, 1)).id)
            return multi_many(multis)

        monkeypatch.setattr(broker.zookeeper, "multi_many", write_twice)
        broker.cluster.delete_topic("orders")
        broker.fake.wait_for(lambda: created and broker.fake.metadata.snapshot.topic_by_id(created[-1]) is not None)
        broker.do(lambda _term: None)
        assert broker.zookeeper.exists(TOPIC_PATH) is not None


@pytest.mark.parametrize("gone", [CONFIG_PATH, MARK_PATH])
def test_nodes_that_somebody_removed_do_not_hold_up_a_deletion(
    zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    """What is left goes all the same."""
    with brokers(zookeeper, 1) as (broker,):
        broker.cluster.create_topic(TopicSpec("orders", 1, 1))
        broker.fake.wait_for(lambda: broker.fake.leader("orders") == 1)

        def remove() -> None:
            is_under_way = broker.zookeeper.exists(znodes.state_path("orders", 0)) is None
            if is_under_way and broker.zookeeper.exists(gone) is not None:
                broker.zookeeper.delete(gone)

        after_each_write(broker, monkeypatch, remove)
        broker.cluster.delete_topic("orders")
        broker.wait_until_gone(TOPIC_PATH)
        broker.do(lambda _term: None)
        assert [path for path in (TOPIC_PATH, CONFIG_PATH, MARK_PATH) if broker.zookeeper.exists(path)] == []
