"""ControlledShutdown, with a real controller over a real ZooKeeper."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.controller.brokers import Broker, brokers
from tests.broker.handlers.small_cluster import every_version
from tests.kit.zookeeper import ZooKeeper

from ottla.broker.cluster import znodes
from ottla.broker.cluster.topics import TopicSpec
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from ottla.protocol.messages.stop_replica import StopReplicaRequest


def announce(controller: Broker, broker: Broker, *, version: int = 3, broker_epoch: int | None = None) -> Any:
    """Tell the controller that a broker is about to stop."""
    epoch = broker.membership.broker_epoch if broker_epoch is None else broker_epoch
    body = ControlledShutdownRequest(broker_id=broker.id, broker_epoch=epoch)
    return controller.ask(Api.CONTROLLED_SHUTDOWN, version, body)


@pytest.mark.parametrize("version", every_version(Api.CONTROLLED_SHUTDOWN))
def test_others_take_over_before_the_broker_stops(zookeeper: ZooKeeper, version: int) -> None:
    """It leads nothing that others can, is in no ISR, and is told to stop what it follows."""
    with brokers(zookeeper, 1, 2) as (first, second):
        first.cluster.create_topic(TopicSpec("alone", assignment={0: [2]}))
        first.cluster.create_topic(TopicSpec("orders", assignment={0: [2, 1], 1: [1, 2]}))
        first.fake.wait_for(lambda: first.fake.leader("orders", 1) == 1 and first.fake.leader("alone") == 2)

        response = announce(first, second, version=version)

        assert (response.error_code, response.remaining_partitions) == (ErrorCode.NONE, [])
        first.fake.wait_for(lambda: first.fake.leader("orders") == 1 and isr(first, 1) == [1])
        assert isr(first, 0) == [1]
        assert first.fake.leader("alone") == 2
        second.fake.wait_for(lambda: stopped(second) == {TopicPartition("orders", 1)})
        assert second.fake.partitions[TopicPartition("orders", 0)].leader == 1


def test_what_nobody_else_can_lead_remains(zookeeper: ZooKeeper) -> None:
    """The broker may ask again when another replica has caught up."""
    with brokers(zookeeper, 1, 2) as (first, second):
        # So broker 1 is not in the ISR.
        first.do(lambda term: term.context.shutting_down.add(1))
        first.cluster.create_topic(TopicSpec("orders", assignment={0: [2, 1]}))
        first.fake.wait_for(lambda: first.fake.leader("orders") == 2)

        response = announce(first, second)

        (remaining,) = response.remaining_partitions
        assert (remaining.topic_name, remaining.partition_index) == ("orders", 0)
        assert announce(first, second).remaining_partitions == response.remaining_partitions


def test_a_broker_that_comes_back_may_lead_again(zookeeper: ZooKeeper) -> None:
    """Its earlier life was about to stop, not this one."""
    with brokers(zookeeper, 1, 2) as (first, second):
        announce(first, second)
        second.zookeeper.close()
        first.wait_for_brokers(1)
        again = Broker(zookeeper, 2)
        try:
            first.wait_for_brokers(2)
            first.cluster.create_topic(TopicSpec("orders", assignment={0: [2, 1]}))
            first.fake.wait_for(lambda: first.fake.leader("orders") == 2)
        finally:
            again.stop()


def test_refusals(zookeeper: ZooKeeper) -> None:
    """An earlier life, a broker that is not there, a controller that is none."""
    with brokers(zookeeper, 1, 2) as (first, second):
        earlier = announce(first, second, broker_epoch=second.membership.broker_epoch - 1)
        assert earlier.error_code == ErrorCode.STALE_BROKER_EPOCH
        assert announce(second, second).error_code == ErrorCode.NOT_CONTROLLER
        body = ControlledShutdownRequest(broker_id=9, broker_epoch=1)
        assert first.ask(Api.CONTROLLED_SHUTDOWN, 3, body).error_code == ErrorCode.BROKER_NOT_AVAILABLE


def isr(broker: Broker, partition: int) -> list[int]:
    """The ISR of a partition, as ZooKeeper has it."""
    path = znodes.state_path("orders", partition)
    return znodes.PartitionStateNode.decode(broker.zookeeper.read(path).data, path).isr


def stopped(broker: Broker) -> set[TopicPartition]:
    """The replicas that a broker was told to stop."""
    return {
        TopicPartition(topic.topic_name, state.partition_index)
        for request in broker.fake.requests
        if isinstance(request, StopReplicaRequest)
        for topic in request.topic_states
        for state in topic.partition_states
        if not state.delete_partition
    }
