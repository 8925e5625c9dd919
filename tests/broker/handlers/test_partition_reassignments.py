"""AlterPartitionReassignments and ListPartitionReassignments, with a real controller over a real ZooKeeper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from tests.broker.controller.brokers import Broker, brokers
from tests.broker.handlers.small_cluster import every_version
from tests.kit.zookeeper import ZooKeeper

from ottla.broker.cluster.topics import TopicSpec
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)

Targets = Mapping[str, Mapping[int, Sequence[int] | None]]


def alter(broker: Broker, version: int, targets: Targets) -> Any:
    """Ask for targets, by topic and partition."""
    topics = [
        ReassignableTopic(
            name=topic,
            partitions=[
                ReassignablePartition(partition_index=index, replicas=None if replicas is None else list(replicas))
                for index, replicas in partitions.items()
            ],
        )
        for topic, partitions in targets.items()
    ]
    body = AlterPartitionReassignmentsRequest(topics=topics)
    return broker.ask(Api.ALTER_PARTITION_REASSIGNMENTS, version, body)


def listed(broker: Broker, version: int, chosen: Mapping[str, Sequence[int]] | None = None) -> Any:
    """Ask what is on its way."""
    topics = (
        None
        if chosen is None
        else [
            ListPartitionReassignmentsTopics(name=topic, partition_indexes=list(indexes))
            for topic, indexes in chosen.items()
        ]
    )
    body = ListPartitionReassignmentsRequest(topics=topics)
    return broker.ask(Api.LIST_PARTITION_REASSIGNMENTS, version, body)


@pytest.mark.parametrize("version", every_version(Api.ALTER_PARTITION_REASSIGNMENTS))
def test_what_begins_to_move_is_listed(zookeeper: ZooKeeper, version: int) -> None:
    """Every partition asked about is answered, each by itself; and the list may be asked for in part."""
    with brokers(zookeeper, 1, 2) as (first, _second):
        first.cluster.create_topic(TopicSpec("orders", assignment={0: [1], 1: [1]}))
        first.fake.wait_for(lambda: first.fake.leader("orders", 1) == 1)

        response = alter(first, version, {"orders": {0: [2], 1: [7], 5: [2]}, "nothing": {0: None}})

        assert response.error_code == ErrorCode.NONE
        codes = {
            (topic.name, row.partition_index): (ErrorCode.of(row.error_code), row.error_message is None)
            for topic in response.responses
            for row in topic.partitions
        }
        assert codes == {
            ("orders", 0): (ErrorCode.NONE, True),
            ("orders", 1): (ErrorCode.INVALID_REPLICA_ASSIGNMENT, False),
            ("orders", 5): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
            ("nothing", 0): (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, False),
        }
        ((topic,),) = (listed(first, version).topics,)
        (row,) = topic.partitions
        assert (topic.name, row.partition_index) == ("orders", 0)
        assert (row.replicas, row.adding_replicas, row.removing_replicas) == ([2, 1], [2], [1])
        assert listed(first, version, {"orders": [0]}).topics == [topic]
        assert listed(first, version, {"orders": [1], "nothing": [0]}).topics == []


@pytest.mark.parametrize("version", every_version(Api.ALTER_PARTITION_REASSIGNMENTS))
def test_a_broker_that_is_no_controller_says_so(zookeeper: ZooKeeper, version: int) -> None:
    """For the whole request, whatever is asked."""
    with brokers(zookeeper, 1, 2) as (_first, second):
        refused = alter(second, version, {"orders": {0: [2]}})
        assert (refused.error_code, refused.responses) == (ErrorCode.NOT_CONTROLLER, [])
        assert listed(second, version).error_code == ErrorCode.NOT_CONTROLLER
