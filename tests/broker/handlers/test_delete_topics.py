"""DeleteTopics, version by version."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.handlers.small_cluster import SmallCluster, deleted, every_version, topic, topic_id

from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.update_metadata import UpdateMetadataTopicState
from ottla.protocol.primitives import UUID_ZERO

VERSIONS = every_version(Api.DELETE_TOPICS)
TIMEOUT_MS = 5000


def ask(cluster: SmallCluster, version: int, *names: str, timeout_ms: int = TIMEOUT_MS) -> Any:
    """Ask for topics to be deleted, by name."""
    if version >= 6:
        states = [DeleteTopicState(name=name, topic_id=UUID_ZERO) for name in names]
        return cluster.ask(Api.DELETE_TOPICS, version, DeleteTopicsRequest(topics=states, timeout_ms=timeout_ms))
    body = DeleteTopicsRequest(topic_names=list(names), timeout_ms=timeout_ms)
    return cluster.ask(Api.DELETE_TOPICS, version, body)


def codes(response: Any) -> list[tuple[str | None, int]]:
    """What was answered for each topic."""
    return [(each.name, each.error_code) for each in response.responses]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_answer_comes_when_the_topics_are_gone(version: int) -> None:
    """From the metadata of the broker that answers; a topic named twice is deleted once."""
    cluster = SmallCluster()
    cluster.tell(topic("first", [1, 1]), topic("second"))
    pending = ask(cluster, version, "first", "second", "first")
    cluster.tell(deleted("first", 2))

    assert pending.answers == []
    cluster.tell(deleted("second"))

    assert codes(pending.answer) == [("first", 0), ("second", 0), ("first", 0)]
    assert cluster.zookeeper.deleted == ["first", "second"]


def test_a_new_topic_of_the_same_name_is_not_waited_for() -> None:
    """Somebody may create it again at once."""
    cluster = SmallCluster()
    cluster.tell(topic("first"))
    pending = ask(cluster, 6, "first")
    again = topic("first")

    cluster.tell(
        UpdateMetadataTopicState(topic_name="first", topic_id=bytes(range(16)), partition_states=again.partition_states)
    )

    assert codes(pending.answer) == [("first", 0)]


@pytest.mark.parametrize("version", VERSIONS)
def test_topics_that_are_still_there_are_late_when_the_time_is_over(version: int) -> None:
    """They will be deleted all the same."""
    cluster = SmallCluster()
    cluster.tell(topic("first"), topic("second"))
    pending = ask(cluster, version, "first", "second")
    cluster.tell(deleted("second"))

    cluster.delayed_topics.expire(TIMEOUT_MS / 1000)

    assert codes(pending.answer) == [("first", ErrorCode.REQUEST_TIMED_OUT), ("second", 0)]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_without_time_is_told_that_it_is_over(version: int) -> None:
    """The deletion has begun all the same."""
    cluster = SmallCluster()
    cluster.tell(topic("first"))

    assert codes(ask(cluster, version, "first", timeout_ms=0)) == [("first", ErrorCode.REQUEST_TIMED_OUT)]
    assert cluster.zookeeper.deleted == ["first"]


@pytest.mark.parametrize("version", VERSIONS)
def test_another_broker_than_the_controller_refuses_each_topic(version: int) -> None:
    """Clients look for the controller then."""
    cluster = SmallCluster()
    cluster.zookeeper.is_controller = False

    response = ask(cluster, version, "first", "second")

    assert codes(response) == [("first", ErrorCode.NOT_CONTROLLER), ("second", ErrorCode.NOT_CONTROLLER)]


@pytest.mark.parametrize("version", VERSIONS)
def test_each_topic_has_its_own_outcome(version: int) -> None:
    """What is unknown does not keep the others."""
    cluster = SmallCluster()
    cluster.tell(topic("first"))
    cluster.zookeeper.refusals["nothing"] = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "nothing")
    pending = ask(cluster, version, "nothing", "first")
    cluster.tell(deleted("first"))

    assert codes(pending.answer) == [("nothing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), ("first", 0)]
    if version >= 5:
        assert [each.error_message is None for each in pending.answer.responses] == [False, True]


@pytest.mark.parametrize("version", VERSIONS)
def test_deletion_can_be_disabled(version: int) -> None:
    """Old clients do not know the code for it."""
    cluster = SmallCluster()
    cluster.zookeeper.refusals["first"] = KafkaError(ErrorCode.TOPIC_DELETION_DISABLED)

    expected = ErrorCode.TOPIC_DELETION_DISABLED if version >= 3 else ErrorCode.INVALID_REQUEST
    assert codes(ask(cluster, version, "first")) == [("first", expected)]


def test_topics_are_deleted_by_id_from_version_6() -> None:
    """The answer has their names; both ways of naming at once, or none, are refused."""
    cluster = SmallCluster()
    cluster.tell(topic("first"), topic("second"))
    states = [
        DeleteTopicState(topic_id=topic_id("first")),
        DeleteTopicState(topic_id=topic_id("gone")),
        DeleteTopicState(name="second", topic_id=topic_id("second")),
        DeleteTopicState(topic_id=UUID_ZERO),
    ]
    pending = cluster.ask(Api.DELETE_TOPICS, 6, DeleteTopicsRequest(topics=states, timeout_ms=TIMEOUT_MS))
    cluster.tell(deleted("first"))

    assert [(each.name, each.topic_id, each.error_code) for each in pending.answer.responses] == [
        ("first", topic_id("first"), ErrorCode.NONE),
        (None, topic_id("gone"), ErrorCode.UNKNOWN_TOPIC_ID),
        ("second", topic_id("second"), ErrorCode.INVALID_REQUEST),
        (None, UUID_ZERO, ErrorCode.INVALID_REQUEST),
    ]
    assert cluster.zookeeper.deleted == ["first"]
