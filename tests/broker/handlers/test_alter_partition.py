"""AlterPartition, with a real controller over a real ZooKeeper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.broker.controller.brokers import Broker, brokers
from tests.broker.handlers.small_cluster import every_version
from tests.kit.zookeeper import ZooKeeper

from ottla.broker.cluster import znodes
from ottla.broker.cluster.topics import TopicSpec
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)

UNKNOWN_ID = b"no topic has me!"


def ask(
    controller: Broker,
    leader: Broker,
    version: int,
    isr: Sequence[int | tuple[int, int]],
    *,
    topic: str = "orders",
    topic_id: bytes | None = None,
    partitions: Sequence[int] = (0,),
    partition_epoch: int = 0,
    broker_epoch: int | None = None,
) -> Any:
    """Ask for an ISR, of brokers with or without their epochs."""
    members = [member if isinstance(member, tuple) else (member, -1) for member in isr]
    has_epochs = version >= 3
    data = [
        RequestPartitionData(
            partition_index=index,
            leader_epoch=0,
            new_isr=[] if has_epochs else [broker for broker, _ in members],
            new_isr_with_epochs=[BrokerState(broker_id=broker, broker_epoch=epoch) for broker, epoch in members]
            if has_epochs
            else [],
            partition_epoch=partition_epoch,
        )
        for index in partitions
    ]
    known = controller.fake.topic_ids.get(topic, UNKNOWN_ID) if topic_id is None else topic_id
    body = AlterPartitionRequest(
        broker_id=leader.id,
        broker_epoch=leader.membership.broker_epoch if broker_epoch is None else broker_epoch,
        topics=[RequestTopicData(topic_name=topic, topic_id=known, partitions=data)],
    )
    return controller.ask(Api.ALTER_PARTITION, version, body)


def result(response: Any) -> Any:
    """The one partition of a response."""
    assert response.error_code == ErrorCode.NONE
    ((partition,),) = (topic.partitions for topic in response.topics)
    return partition


@pytest.mark.parametrize("version", every_version(Api.ALTER_PARTITION))
def test_an_isr_shrinks_and_grows_again(zookeeper: ZooKeeper, version: int) -> None:
    """It stands in ZooKeeper, the leader learns the new partition epoch, and all brokers the ISR."""
    with brokers(zookeeper, 1, 2) as (first, second):
        first.cluster.create_topic(TopicSpec("orders", assignment={0: [1, 2]}))
        first.fake.wait_for(lambda: first.fake.leader("orders") == 1)
        second.fake.wait_for(lambda: second.fake.leader("orders") == 1)

        shrunk = result(ask(first, first, version, [1]))

        assert (shrunk.error_code, shrunk.leader_id, shrunk.leader_epoch) == (ErrorCode.NONE, 1, 0)
        assert (shrunk.isr, shrunk.partition_epoch) == ([1], 1)
        path = znodes.state_path("orders", 0)
        assert znodes.PartitionStateNode.decode(first.zookeeper.read(path).data, path).isr == [1]
        second.fake.wait_for(lambda: isr_of(second) == [1])

        again = result(ask(first, first, version, [1]))
        assert (again.error_code, again.partition_epoch) == (ErrorCode.NONE, 1)

        grown = result(ask(first, first, version, [1, (2, second.membership.broker_epoch)], partition_epoch=1))
        assert (grown.error_code, grown.isr, grown.partition_epoch) == (ErrorCode.NONE, [1, 2], 2)
        second.fake.wait_for(lambda: isr_of(second) == [1, 2])


def test_many_partitions_of_one_request_are_changed_together(zookeeper: ZooKeeper) -> None:
    """Each has its own answer, in the order in which they were asked for."""
    with brokers(zookeeper, 1, 2) as (first, _second):
        first.cluster.create_topic(TopicSpec("orders", assignment={index: [1, 2] for index in range(5)}))
        first.fake.wait_for(lambda: first.fake.leader("orders", 4) == 1)

        response = ask(first, first, 3, [1], partitions=[4, 0, 9, 2])

        rows = [(row.partition_index, row.error_code, row.isr) for row in response.topics[0].partitions]
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert rows == [(4, 0, [1]), (0, 0, [1]), (9, unknown, []), (2, 0, [1])]


def test_a_broker_that_is_not_live_cannot_be_in_sync(zookeeper: ZooKeeper) -> None:
    """Nor one that registered anew since the leader saw it catch up. Old versions have another word for it."""
    with brokers(zookeeper, 1, 2) as (first, second):
        first.cluster.create_topic(TopicSpec("orders", assignment={0: [1, 2]}))
        first.fake.wait_for(lambda: first.fake.leader("orders") == 1)
        assert result(ask(first, first, 3, [1])).error_code == ErrorCode.NONE

        earlier = (2, second.membership.broker_epoch - 1)
        refused = result(ask(first, first, 3, [1, earlier], partition_epoch=1))
        assert refused.error_code == ErrorCode.INELIGIBLE_REPLICA

        first.do(lambda term: term.context.shutting_down.add(2))
        assert result(ask(first, first, 2, [1, 2], partition_epoch=1)).error_code == ErrorCode.INELIGIBLE_REPLICA
        assert result(ask(first, first, 1, [1, 2], partition_epoch=1)).error_code == ErrorCode.OPERATION_NOT_ATTEMPTED


def test_a_state_that_somebody_else_changed_is_not_overwritten(zookeeper: ZooKeeper) -> None:
    """The write is bound to the version; what stands there is adopted, so that the leader can go on."""
    with brokers(zookeeper, 1, 2) as (first, _second):
        first.cluster.create_topic(TopicSpec("orders", assignment={0: [1, 2]}))
        first.fake.wait_for(lambda: first.fake.leader("orders") == 1)
        path = znodes.state_path("orders", 0)
        first.zookeeper.write(path, first.zookeeper.read(path).data)

        assert result(ask(first, first, 3, [1])).error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert result(ask(first, first, 3, [1], partition_epoch=1)).partition_epoch == 2


def test_what_cannot_be_answered_for_partitions_is_answered_for_all(zookeeper: ZooKeeper) -> None:
    """Another life of the broker, a broker that is not known, and a controller that is none."""
    with brokers(zookeeper, 1, 2) as (first, second):
        first.cluster.create_topic(TopicSpec("orders", assignment={0: [1, 2]}))
        first.fake.wait_for(lambda: first.fake.leader("orders") == 1)

        earlier = ask(first, first, 3, [1], broker_epoch=first.membership.broker_epoch - 1)
        assert (earlier.error_code, earlier.topics) == (ErrorCode.STALE_BROKER_EPOCH, [])
        assert ask(second, first, 3, [1]).error_code == ErrorCode.NOT_CONTROLLER
        assert result(ask(first, first, 3, [1], topic_id=UNKNOWN_ID)).error_code == ErrorCode.UNKNOWN_TOPIC_ID
        nameless = result(ask(first, first, 1, [1], topic="nothing"))
        assert nameless.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def isr_of(broker: Broker) -> list[int]:
    """The ISR that a broker's metadata has."""
    partition = broker.fake.metadata.snapshot.partition("orders", 0)
    return [] if partition is None else list(partition.isr)
