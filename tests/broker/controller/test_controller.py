"""The controller from end to end: ZooKeeper is real, and brokers that only listen hear what it says."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from tests.broker.controller.brokers import Broker, brokers
from tests.broker.sessions import TIMEOUT_S, expire
from tests.kit.zookeeper import ZooKeeper

from ottla.broker.cluster import znodes
from ottla.broker.cluster.topics import TopicSpec
from ottla.broker.controller.term import Term
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest


def state(broker: Broker, topic: str, partition: int = 0) -> znodes.PartitionStateNode:
    """Read the state node of a partition."""
    path = znodes.state_path(topic, partition)
    return znodes.PartitionStateNode.decode(broker.zookeeper.read(path).data, path)


def test_a_single_broker_elects_itself_and_tells_itself(zookeeper: ZooKeeper) -> None:
    """The first controller has epoch 1, and its broker hears who is alive."""
    with brokers(zookeeper, 1) as (broker,):
        assert broker.controller.is_active
        assert broker.controller.epoch == 1
        assert broker.cluster.controller_id == 1
        request = broker.fake.requests[0]
        assert isinstance(request, UpdateMetadataRequest)
        assert (request.controller_id, request.controller_epoch) == (1, 1)
        assert request.broker_epoch == broker.membership.broker_epoch
        assert broker.zookeeper.read(znodes.FEATURE).data == b'{"version":2,"status":1,"features":{}}'


def test_a_new_topic_reaches_the_broker(zookeeper: ZooKeeper) -> None:
    """Leadership is told before metadata, and stands in ZooKeeper."""
    with brokers(zookeeper, 1) as (broker,):
        created = broker.cluster.create_topic(TopicSpec("orders", 3, 1))
        broker.fake.wait_for(lambda: broker.fake.leader("orders", 2) == 1)

        told = broker.fake.partitions[TopicPartition("orders", 0)]
        assert (told.leader, told.leader_epoch, told.isr, told.replicas) == (1, 0, [1], [1])
        assert told.is_new
        assert broker.fake.topic_ids["orders"] == created.id
        topic = broker.fake.metadata.snapshot.topic_by_id(created.id)
        assert topic is not None
        assert sorted(topic.partitions) == [0, 1, 2]
        kinds = [type(request) for request in broker.fake.requests]
        assert kinds.index(LeaderAndIsrRequest) < len(kinds) - 1 - kinds[::-1].index(UpdateMetadataRequest)
        data = broker.zookeeper.read("/brokers/topics/orders/partitions/0/state").data
        kafkas = b'{"version":1,"leader":1,"leader_epoch":0,"controller_epoch":1,"isr":[1]'
        assert data == kafkas + b',"isr_broker_epochs":[%d]}' % broker.membership.broker_epoch


def test_added_partitions_reach_the_broker(zookeeper: ZooKeeper) -> None:
    """The partitions that were there are left alone."""
    with brokers(zookeeper, 1) as (broker,):
        broker.cluster.create_topic(TopicSpec("orders", 1, 1))
        broker.fake.wait_for(lambda: broker.fake.leader("orders") == 1)
        broker.cluster.create_partitions("orders", 3)
        broker.fake.wait_for(lambda: broker.fake.leader("orders", 2) == 1)
        assert state(broker, "orders").leader_epoch == 0
        assert sorted(broker.fake.partitions) == [TopicPartition("orders", index) for index in range(3)]


def test_a_deleted_topic_leaves_nothing_behind(zookeeper: ZooKeeper) -> None:
    """The broker deletes its replicas, the nodes go, and the name is free again."""
    with brokers(zookeeper, 1) as (broker,):
        broker.cluster.create_topic(TopicSpec("orders", 2, 1, configs={"retention.ms": "1000"}))
        broker.fake.wait_for(lambda: broker.fake.leader("orders", 1) == 1)
        broker.cluster.delete_topic("orders")
        broker.fake.wait_for(lambda: broker.fake.deleted == {TopicPartition("orders", 0), TopicPartition("orders", 1)})
        assert broker.fake.metadata.snapshot.topic("orders") is None

        wait_until_gone(broker, znodes.delete_topic_path("orders"))
        assert broker.zookeeper.exists(znodes.topic_path("orders")) is None
        assert broker.zookeeper.exists("/config/topics/orders") is None
        second = broker.cluster.create_topic(TopicSpec("orders", 1, 1))
        broker.fake.wait_for(lambda: broker.fake.metadata.snapshot.topic_by_id(second.id) is not None)


def test_a_mark_without_a_topic_is_removed(zookeeper: ZooKeeper) -> None:
    """Deleting what does not exist does nothing."""
    with brokers(zookeeper, 1) as (broker,):
        broker.zookeeper.create(znodes.delete_topic_path("nothing"))
        wait_until_gone(broker, znodes.delete_topic_path("nothing"))


@contextmanager
def closing_broker(zookeeper: ZooKeeper, broker_id: int) -> Iterator[Broker]:
    """Start a broker beside others."""
    started = Broker(zookeeper, broker_id)
    try:
        yield started
    finally:
        started.stop()


def test_topics_are_found_again_after_a_restart(zookeeper: ZooKeeper) -> None:
    """A controller begins with what its predecessor left; a leader that restarted unseen leads in another epoch."""
    with brokers(zookeeper, 1) as (broker,):
        broker.cluster.create_topic(TopicSpec("orders", 2, 1))
        broker.fake.wait_for(lambda: broker.fake.leader("orders", 1) == 1)
    with brokers(zookeeper, 1) as (broker,):
        broker.fake.wait_for(lambda: TopicPartition("orders", 0) in broker.fake.partitions)
        assert broker.controller.epoch == 2
        assert broker.fake.partitions[TopicPartition("orders", 0)].leader_epoch == 1


def test_a_broker_that_started_while_nobody_was_in_office_hears_of_brokers_and_topics_at_once(
    zookeeper: ZooKeeper,
) -> None:
    """If it knew the brokers first, it would tell clients for a moment that their topics do not exist."""
    with brokers(zookeeper, 1) as (broker,):
        broker.cluster.create_topic(TopicSpec("orders", 2, 1))
        broker.fake.wait_for(lambda: broker.fake.leader("orders", 1) == 1)
    with brokers(zookeeper, 1) as (broker,):
        broker.fake.wait_for(lambda: broker.fake.leader("orders", 1) == 1)
        first = broker.fake.requests[0]
        assert isinstance(first, UpdateMetadataRequest)
        assert [(topic.topic_name, len(topic.partition_states)) for topic in first.topic_states] == [("orders", 2)]
        assert [each.id for each in first.live_brokers] == [1]


def test_a_leader_that_restarted_while_nobody_was_in_office_gives_way(zookeeper: ZooKeeper) -> None:
    """It may have lost the end of its log with its power, and nobody saw it go; the other replica has everything."""
    with brokers(zookeeper, 1, 2) as (first, second):
        first.cluster.create_topic(TopicSpec("orders", assignment={0: [1, 2]}))
        second.fake.wait_for(lambda: second.fake.leader("orders") == 1)
        second.controller.close()
        first.controller.close()
        first.zookeeper.close()
        with closing_broker(zookeeper, 1) as returned:
            returned.fake.wait_for(lambda: returned.fake.leader("orders") == 2)
            now = state(returned, "orders")
            assert (now.leader, now.leader_epoch, now.isr) == (2, 1, [2])


def test_a_broker_that_leaves_loses_its_leadership(zookeeper: ZooKeeper) -> None:
    """The next replica in sync leads; the ISR shrinks; the broker leaves the metadata."""
    with brokers(zookeeper, 1, 2) as (first, second):
        first.cluster.create_topic(TopicSpec("orders", assignment={0: [2, 1]}))
        first.fake.wait_for(lambda: first.fake.leader("orders") == 2)
        second.zookeeper.close()
        first.fake.wait_for(lambda: first.fake.leader("orders") == 1)
        assert list(first.fake.metadata.snapshot.brokers) == [1]
        now = state(first, "orders")
        assert (now.leader, now.leader_epoch, now.isr) == (1, 1, [1])


def test_the_last_in_sync_replica_keeps_its_claim(zookeeper: ZooKeeper) -> None:
    """A partition whose only replica is gone has no leader, and gets it back with the broker."""
    with brokers(zookeeper, 1, 2) as (first, second):
        first.cluster.create_topic(TopicSpec("orders", assignment={0: [2]}))
        first.fake.wait_for(lambda: first.fake.leader("orders") == 2)
        second.zookeeper.close()
        first.fake.wait_for(lambda: first.fake.leader("orders") == -1)
        assert state(first, "orders").isr == [2]
        again = Broker(zookeeper, 2)
        try:
            first.fake.wait_for(lambda: first.fake.leader("orders") == 2)
            again.fake.wait_for(lambda: again.fake.leader("orders") == 2)
            # A broker that joins hears of its roles after the metadata.
            again.fake.wait_for(lambda: TopicPartition("orders", 0) in again.fake.partitions)
            assert again.fake.partitions[TopicPartition("orders", 0)].leader == 2
            assert state(first, "orders").leader_epoch == 2
        finally:
            again.stop()


def test_a_topic_with_a_replica_on_a_dead_broker_waits(zookeeper: ZooKeeper) -> None:
    """The deletion goes on when the broker is back; until then nobody takes its name."""
    with brokers(zookeeper, 1, 2) as (first, second):
        first.cluster.create_topic(TopicSpec("orders", assignment={0: [1, 2]}))
        first.fake.wait_for(lambda: first.fake.leader("orders") == 1)
        second.zookeeper.close()
        first.fake.wait_for(lambda: list(first.fake.metadata.snapshot.brokers) == [1])
        first.cluster.delete_topic("orders")
        first.fake.wait_for(lambda: first.fake.deleted)
        assert first.zookeeper.exists(znodes.topic_path("orders")) is not None
        with pytest.raises(KafkaError, match="TOPIC_ALREADY_EXISTS"):
            first.cluster.create_topic(TopicSpec("orders", 1, 1))
        again = Broker(zookeeper, 2)
        try:
            again.fake.wait_for(lambda: again.fake.deleted)
            wait_until_gone(first, znodes.delete_topic_path("orders"))
            second_of_its_name = first.cluster.create_topic(TopicSpec("orders", assignment={0: [2, 1]}))
            again.fake.wait_for(lambda: again.fake.topic_ids.get("orders") == second_of_its_name.id)
        finally:
            again.stop()


def test_a_deletion_is_finished_by_another_controller(zookeeper: ZooKeeper) -> None:
    """Also of a replica that was on a dead broker when it began; whatever stands below the topic goes with it."""
    with brokers(zookeeper, 1, 2, 3) as (first, second, third):
        first.cluster.create_topic(TopicSpec("orders", assignment={0: [1, 2, 3], 1: [3, 2, 1]}))
        first.fake.wait_for(lambda: first.fake.leader("orders", 1) == 3)
        first.zookeeper.create("/brokers/topics/orders/partitions/0/left-by-a-tool")
        third.zookeeper.close()
        first.wait_for_brokers(2)
        first.cluster.delete_topic("orders")
        second.fake.wait_for(lambda: len(second.fake.deleted) == 2)
        first.controller.close()
        first.zookeeper.close()
        second.fake.wait_for(lambda: second.fake.metadata.snapshot.controller_id == 2)
        returned = [Broker(zookeeper, 3), Broker(zookeeper, 1)]
        try:
            for broker in returned:
                deleted = broker.fake.deleted
                broker.fake.wait_for(partial(both_are_in, deleted))
            wait_until_gone(second, znodes.delete_topic_path("orders"))
            assert second.zookeeper.exists(znodes.topic_path("orders")) is None
        finally:
            for broker in returned:
                broker.stop()


def both_are_in(deleted: set[TopicPartition]) -> bool:
    """Whether both partitions of a topic were deleted."""
    return len(deleted) == 2


def test_a_replica_that_cannot_be_deleted_keeps_its_topic(zookeeper: ZooKeeper) -> None:
    """The topic stays marked, for the day when the broker is started again."""
    with brokers(zookeeper, 1) as (broker,):
        broker.cluster.create_topic(TopicSpec("orders", 1, 1))
        broker.fake.wait_for(lambda: broker.fake.leader("orders") == 1)
        broker.fake.stop_error = ErrorCode.KAFKA_STORAGE_ERROR
        broker.cluster.delete_topic("orders")
        broker.fake.wait_for(lambda: broker.fake.metadata.snapshot.topic("orders") is None)
        # An event after the refusal proves that the controller has handled it.
        broker.cluster.create_topic(TopicSpec("later", 1, 1))
        broker.fake.wait_for(lambda: broker.fake.leader("later") == 1)
        assert broker.zookeeper.exists(znodes.topic_path("orders")) is not None
        broker.fake.stop_error = ErrorCode.NONE
    with brokers(zookeeper, 1) as (broker,):
        broker.fake.wait_for(lambda: broker.fake.deleted == {TopicPartition("orders", 0)})
        wait_until_gone(broker, znodes.delete_topic_path("orders"))


def test_replicas_on_a_failed_disk_go_offline(zookeeper: ZooKeeper) -> None:
    """The broker is asked, and what it has lost is led by others or by nobody; the rest goes on."""
    with brokers(zookeeper, 1, 2) as (first, second):
        first.cluster.create_topic(TopicSpec("orders", assignment={0: [2], 1: [2]}))
        first.cluster.create_topic(TopicSpec("copied", assignment={0: [2, 1]}))
        first.fake.wait_for(lambda: first.fake.leader("orders", 1) == 2 and first.fake.leader("copied") == 2)
        second.fake.lost = {TopicPartition("orders", 0), TopicPartition("copied", 0)}
        second.cluster.report_log_dir_failure()
        first.fake.wait_for(lambda: first.fake.leader("orders") == -1 and first.fake.leader("copied") == 1)
        assert first.fake.leader("orders", 1) == 2
        lost = first.fake.metadata.snapshot.partition("orders", 0)
        assert lost is not None
        assert (lost.isr, lost.offline_replicas) == ([2], [2])
        assert state(first, "copied").isr == [1]
        assert first.zookeeper.children(znodes.LOG_DIR_EVENTS) == []


def test_another_broker_takes_over_the_office(zookeeper: ZooKeeper) -> None:
    """When the controller's session ends, the other one is elected, with a higher epoch."""
    with brokers(zookeeper, 1, 2) as (first, second):
        assert not second.controller.is_active
        first.controller.close()
        first.zookeeper.close()
        second.fake.wait_for(lambda: second.fake.metadata.snapshot.controller_id == 2)
        assert second.controller.epoch == 2
        assert list(second.fake.metadata.snapshot.brokers) == [2]


def test_an_expired_session_costs_office_and_registration_for_a_while(zookeeper: ZooKeeper) -> None:
    """The broker registers again with a higher epoch, and is elected again."""
    with brokers(zookeeper, 1) as (broker,):
        broker.cluster.create_topic(TopicSpec("orders", 1, 1))
        broker.fake.wait_for(lambda: broker.fake.leader("orders") == 1)
        epoch = broker.membership.broker_epoch
        expire(broker.zookeeper)
        broker.fake.wait_for(lambda: broker.fake.metadata.snapshot.controller_epoch == 2)
        broker.fake.wait_for(lambda: broker.fake.leader("orders") == 1)
        assert broker.membership.broker_epoch > epoch
        assert broker.controller.is_active
        assert not broker.failures
        broker.cluster.create_topic(TopicSpec("later", 1, 1))
        broker.fake.wait_for(lambda: broker.fake.leader("later") == 1)


def test_deleting_the_controllers_node_moves_the_office(zookeeper: ZooKeeper) -> None:
    """The way in which operators move a controller: everybody may stand again."""
    with brokers(zookeeper, 1) as (broker,):
        broker.zookeeper.delete(znodes.CONTROLLER)
        broker.fake.wait_for(lambda: broker.fake.metadata.snapshot.controller_epoch == 2)


def test_a_controller_resigns_when_a_newer_one_is_in_office(
    zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that finds the epoch raised is not done, and ends the term."""
    resigned = threading.Event()
    close = Term.close

    def close_and_tell(term: Term) -> None:
        close(term)
        resigned.set()

    monkeypatch.setattr(Term, "close", close_and_tell)
    with brokers(zookeeper, 1) as (broker,):
        broker.zookeeper.write(znodes.CONTROLLER_EPOCH, b"7")
        broker.cluster.create_topic(TopicSpec("orders", 1, 1))
        assert resigned.wait(TIMEOUT_S)
        assert broker.zookeeper.exists(znodes.state_path("orders", 0)) is None
        assert not broker.controller.is_active
        # The node is still there, though nobody acts on it; once it is gone, there is an election again.
        broker.zookeeper.delete(znodes.CONTROLLER)
        broker.fake.wait_for(lambda: broker.fake.metadata.snapshot.controller_epoch == 8)
        broker.fake.wait_for(lambda: broker.fake.leader("orders") == 1)


def wait_until_gone(broker: Broker, path: str) -> None:
    """Wait until a node is deleted."""
    assert broker.membership._wait_until_gone(path, TIMEOUT_S)
