"""Deleted topics come back as they were, wherever the controller stops on the way."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from tests.broker.controller.brokers import Broker, brokers
from tests.kit.waiting import until
from tests.kit.zookeeper import ZooKeeper

from ottla.broker.cluster import znodes
from ottla.broker.cluster.kept_logs import give_up_logs
from ottla.broker.cluster.operations import MultiError, NodeStat, Operation, ZooKeeperUnavailableError
from ottla.broker.cluster.topics import TopicSpec
from ottla.broker.controller.kept_topics import DeletedTopic
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrPartitionState
from ottla.protocol.messages.stop_replica import StopReplicaRequest
from ottla.protocol.messages.undelete_topics import UndeletableTopic, UndeletableTopicResult, UndeleteTopicsRequest

TOPIC_PATH = znodes.topic_path("orders")
OPTIONS = {"ottla.undelete.ms": "600000", "retention.ms": "1000"}
STOPS_MAX = 20


def kept(broker: Broker) -> list[DeletedTopic]:
    """What can be brought back, as the controller knows it."""
    return broker.do(lambda term: term.kept_topics.all())


def deleted_topic(broker: Broker, *replicas: int) -> DeletedTopic:
    """Create a topic, and delete it."""
    broker.cluster.create_topic(TopicSpec("orders", assignment={0: replicas, 1: replicas}, configs=OPTIONS))
    broker.fake.wait_for(lambda: broker.fake.leader("orders", 1) == replicas[0])
    broker.cluster.delete_topic("orders")
    broker.wait_until_gone(TOPIC_PATH)
    (found,) = kept(broker)
    return found


def undelete(broker: Broker, deleted: DeletedTopic, new_name: str | None = None) -> UndeletableTopicResult:
    """Ask the broker to bring a topic back."""
    wanted = UndeletableTopic(topic_id=deleted.topic_id, new_name=new_name)
    answer = broker.ask(Api.UNDELETE_TOPICS, 0, UndeleteTopicsRequest(topics=[wanted], timeout_ms=30_000))
    (result,) = answer.topics
    assert isinstance(result, UndeletableTopicResult)
    return result


def role_after(deleted: DeletedTopic, broker: Broker, topic: str = "orders") -> LeaderAndIsrPartitionState:
    """Wait until a broker was told to lead or follow a topic that came back; return its role in the first partition."""
    partition = TopicPartition(topic, 0)
    before = deleted.content.partitions[0].leader_epoch

    def is_told() -> bool:
        role = broker.fake.partitions.get(partition)
        return role is not None and role.leader_epoch > before

    broker.fake.wait_for(is_told)
    return broker.fake.partitions[partition]


def test_a_topic_comes_back_with_its_id_options_and_isr(zookeeper: ZooKeeper) -> None:
    """Brokers are told to keep the logs, and then to lead in a later epoch; they need not create anything."""
    with brokers(zookeeper, 1, 2) as (first, second):
        deleted = deleted_topic(first, 2, 1)
        assert (deleted.content.name, deleted.content.is_complete) == ("orders", True)
        assert deleted.content.partitions[0].isr == [2, 1]
        stops = [each for each in second.fake.requests if isinstance(each, StopReplicaRequest)]
        deletions = [
            state
            for each in stops
            for topic in each.topic_states
            for state in topic.partition_states
            if state.delete_partition
        ]
        assert {state.kept_until_ms for state in deletions} == {deleted.content.kept_until_ms}

        assert undelete(first, deleted).error_code == ErrorCode.NONE

        first.fake.wait_for(lambda: first.fake.leader("orders") == 2)
        role = role_after(deleted, second)
        assert (role.leader, sorted(role.isr), role.is_new) == (2, [1, 2], False)
        assert second.fake.topic_ids["orders"] == deleted.topic_id
        config = first.zookeeper.read(znodes.config_path(znodes.TOPIC_CONFIGS, "orders"))
        assert znodes.ConfigNode.decode(config.data, "").config == OPTIONS
        assert kept(first) == []
        # The answer was lost, and the client asks again.
        assert undelete(first, deleted).error_code == ErrorCode.NONE


def test_only_topics_with_the_option_are_kept(zookeeper: ZooKeeper) -> None:
    """By default nothing is."""
    with brokers(zookeeper, 1) as (broker,):
        broker.cluster.create_topic(TopicSpec("orders", 1, 1))
        broker.fake.wait_for(lambda: broker.fake.leader("orders") == 1)
        broker.cluster.delete_topic("orders")
        broker.wait_until_gone(TOPIC_PATH)

        assert kept(broker) == []


def test_a_taken_name_and_brokers_without_the_logs_are_refused(zookeeper: ZooKeeper) -> None:
    """Another name is fine; a replica that was given up does not come back, and without any the topic does not."""
    with brokers(zookeeper, 1, 2) as (first, second):
        deleted = deleted_topic(first, 2, 1)
        first.cluster.create_topic(TopicSpec("orders", 1, 1))
        assert undelete(first, deleted).error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        assert give_up_logs(second.zookeeper, second.services.metadata, 2, deleted.topic_id, "orders")
        (listed,) = first.ask(Api.UNDELETE_TOPICS, 0, UndeleteTopicsRequest(topics=None)).topics
        assert (listed.given_up_by, listed.error_code) == ([2], ErrorCode.TOPIC_ALREADY_EXISTS)

        assert undelete(first, deleted, "old-orders").error_code == ErrorCode.NONE
        assert role_after(deleted, first, "old-orders").isr == [1]
        # It is back: nobody may give up anything of it now.
        assert not give_up_logs(first.zookeeper, first.services.metadata, 1, deleted.topic_id, "orders")

        first.cluster.delete_topic("old-orders")
        first.wait_until_gone(znodes.topic_path("old-orders"))
        assert give_up_logs(first.zookeeper, first.services.metadata, 1, deleted.topic_id, "old-orders")
        refused = undelete(first, deleted, "old-orders")
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert "their disks needed the space" in str(refused.error_message)


def test_a_topic_whose_brokers_are_down_waits_for_one(zookeeper: ZooKeeper) -> None:
    """Otherwise it would come back without its records."""
    with brokers(zookeeper, 1, 2) as (first, second):
        deleted = deleted_topic(first, 2)
        second.zookeeper.close()
        first.wait_for_brokers(1)

        refused = undelete(first, deleted)

        assert refused.error_code == ErrorCode.REPLICA_NOT_AVAILABLE
        assert "are down: [2]" in str(refused.error_message)


@dataclass
class Stopping:
    """Makes a controller fail after so many of its writes, as if it had died there."""

    broker: Broker
    writes_left: int
    has_stopped: bool = False

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        multi_many = self.broker.zookeeper.multi_many

        def write(multis: Sequence[Sequence[Operation]]) -> list[list[NodeStat | None] | MultiError]:
            if not self.has_stopped and threading.current_thread().name == "controller":
                if self.writes_left == 0:
                    self.has_stopped = True
                    raise ZooKeeperUnavailableError("the controller dies here")
                self.writes_left -= 1
            return multi_many(multis)

        monkeypatch.setattr(self.broker.zookeeper, "multi_many", write)


def is_settled(broker: Broker) -> bool:
    """Whether the topic is wholly there, or wholly among the deleted ones."""
    if not broker.controller.is_active:
        return False
    marked = broker.zookeeper.exists(znodes.delete_topic_path("orders")) is not None
    is_there = broker.zookeeper.exists(TOPIC_PATH) is not None
    return not marked and is_there != bool(kept(broker))


def test_an_undeletion_that_stops_anywhere_can_be_done_again(
    zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next controller finds the topic among the deleted ones, or back with what its partitions were."""
    with brokers(zookeeper, 1) as (broker,):
        deleted = deleted_topic(broker, 1)
        for writes in range(STOPS_MAX):
            with monkeypatch.context() as patch:
                stopping = Stopping(broker, writes)
                stopping.install(patch)
                answer = broker.ask(
                    Api.UNDELETE_TOPICS,
                    0,
                    UndeleteTopicsRequest(topics=[UndeletableTopic(topic_id=deleted.topic_id)], timeout_ms=30_000),
                )
                until(lambda: is_settled(broker), "the next controller has settled it", not_yet=AssertionError)
            assert undelete(broker, deleted).error_code == ErrorCode.NONE
            broker.fake.wait_for(lambda: broker.fake.leader("orders", 1) == 1)
            role = role_after(deleted, broker)
            assert (role.isr, role.is_new) == ([1], False)
            assert broker.fake.topic_ids["orders"] == deleted.topic_id
            if not stopping.has_stopped:
                assert answer.topics[0].error_code == ErrorCode.NONE
                break
            broker.cluster.delete_topic("orders")
            broker.wait_until_gone(TOPIC_PATH)
            (deleted,) = kept(broker)
        assert writes >= 4


def test_a_deletion_that_stops_anywhere_is_kept_as_it_began(
    zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was in sync when the deletion began is what comes back."""
    with brokers(zookeeper, 1) as (broker,):
        broker.cluster.create_topic(TopicSpec("orders", assignment={0: [1], 1: [1]}, configs=OPTIONS))
        broker.fake.wait_for(lambda: broker.fake.leader("orders", 1) == 1)
        for writes in range(STOPS_MAX):
            with monkeypatch.context() as patch:
                stopping = Stopping(broker, writes)
                stopping.install(patch)
                broker.cluster.delete_topic("orders")
                until(
                    lambda: is_settled(broker) and kept(broker),
                    "the next controller has deleted it",
                    not_yet=AssertionError,
                )
            (deleted,) = kept(broker)
            assert [each.isr for each in deleted.content.partitions.values()] == [[1], [1]]
            assert deleted.content.config == OPTIONS
            assert undelete(broker, deleted).error_code == ErrorCode.NONE
            if not stopping.has_stopped:
                break
        assert writes >= 3
