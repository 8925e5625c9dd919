"""CreatePartitions, version by version."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.handlers.small_cluster import SmallCluster, every_version, topic

from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)

VERSIONS = every_version(Api.CREATE_PARTITIONS)
TIMEOUT_MS = 5000


def wanted(name: str, count: int, assignment: list[list[int]] | None = None) -> CreatePartitionsTopic:
    """A topic as a client wants to enlarge it."""
    given = None if assignment is None else [CreatePartitionsAssignment(broker_ids=each) for each in assignment]
    return CreatePartitionsTopic(name=name, count=count, assignments=given)


def ask(cluster: SmallCluster, version: int, *topics: CreatePartitionsTopic, **options: Any) -> Any:
    """Ask for topics to be enlarged."""
    fields = {"timeout_ms": TIMEOUT_MS, "validate_only": False, **options}
    return cluster.ask(Api.CREATE_PARTITIONS, version, CreatePartitionsRequest(topics=list(topics), **fields))


def codes(response: Any) -> list[tuple[str, int]]:
    """What was answered for each topic."""
    return [(each.name, each.error_code) for each in response.results]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_answer_comes_when_the_new_partitions_have_leaders(version: int) -> None:
    """And has every topic in it."""
    cluster = SmallCluster()
    cluster.tell(topic("first"), topic("second"))
    pending = ask(cluster, version, wanted("first", 3), wanted("second", 2, [[1]]))
    cluster.tell(topic("first", [1, 1, -1]), topic("second", [1, 1]))

    assert pending.answers == []
    cluster.tell(topic("first", [1, 1, 1]))

    assert codes(pending.answer) == [("first", 0), ("second", 0)]
    assert [each.error_message for each in pending.answer.results] == [None, None]
    assert cluster.zookeeper.partition_counts == {"first": 3, "second": 2}
    assert cluster.zookeeper.assignments == {"first": None, "second": [[1]]}


@pytest.mark.parametrize("version", VERSIONS)
def test_partitions_without_leaders_are_late_when_the_time_is_over(version: int) -> None:
    """They exist all the same."""
    cluster = SmallCluster()
    cluster.tell(topic("first"))
    pending = ask(cluster, version, wanted("first", 2))

    cluster.delayed_topics.expire(TIMEOUT_MS / 1000)

    assert codes(pending.answer) == [("first", ErrorCode.REQUEST_TIMED_OUT)]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_without_time_is_told_that_it_is_over(version: int) -> None:
    """As for CreateTopics."""
    response = ask(SmallCluster(), version, wanted("first", 2), timeout_ms=0)

    assert codes(response) == [("first", ErrorCode.REQUEST_TIMED_OUT)]


@pytest.mark.parametrize("version", VERSIONS)
def test_another_broker_than_the_controller_refuses_each_topic(version: int) -> None:
    """Clients look for the controller then."""
    cluster = SmallCluster()
    cluster.zookeeper.is_controller = False

    response = ask(cluster, version, wanted("first", 2), wanted("second", 2))

    assert codes(response) == [("first", ErrorCode.NOT_CONTROLLER), ("second", ErrorCode.NOT_CONTROLLER)]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_topic_is_answered_with_its_own_outcome(version: int) -> None:
    """Also one that is named twice, and one that would shrink."""
    cluster = SmallCluster()
    cluster.tell(topic("good", [1, 1]))
    cluster.zookeeper.refusals["large"] = KafkaError(ErrorCode.INVALID_PARTITIONS, "their number can only grow")

    pending = ask(cluster, version, wanted("twice", 2), wanted("large", 1), wanted("good", 2), wanted("twice", 3))

    assert codes(pending.answer) == [
        ("twice", ErrorCode.INVALID_REQUEST),
        ("large", ErrorCode.INVALID_PARTITIONS),
        ("good", ErrorCode.NONE),
        ("twice", ErrorCode.INVALID_REQUEST),
    ]
    assert pending.answer.results[1].error_message.endswith("their number can only grow")


@pytest.mark.parametrize("version", VERSIONS)
def test_validation_adds_nothing_and_waits_for_nothing(version: int) -> None:
    """It only checks."""
    cluster = SmallCluster()

    assert codes(ask(cluster, version, wanted("first", 2), validate_only=True)) == [("first", 0)]
    assert cluster.zookeeper.partition_counts == {}
