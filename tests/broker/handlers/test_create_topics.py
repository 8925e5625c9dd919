"""CreateTopics, version by version."""

from __future__ import annotations

from typing import Any

import pytest
import structlog
from tests.broker.handlers.small_cluster import SmallCluster, every_version, topic, topic_id

from ottla.broker.config import TOPIC_OPTIONS, ConfigSource
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.primitives import UUID_ZERO

VERSIONS = every_version(Api.CREATE_TOPICS)
TIMEOUT_MS = 5000


def wanted(
    name: str,
    partitions: int = -1,
    replicas: int = -1,
    *,
    assignment: dict[int, list[int]] | None = None,
    configs: dict[str, str | None] | None = None,
) -> CreatableTopic:
    """A topic as a client asks for it."""
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in (assignment or {}).items()
        ],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )


def ask(cluster: SmallCluster, version: int, *topics: CreatableTopic, **options: Any) -> Any:
    """Ask for topics to be created."""
    body = CreateTopicsRequest(topics=list(topics), **{"timeout_ms": TIMEOUT_MS, **options})
    return cluster.ask(Api.CREATE_TOPICS, version, body)


def codes(response: Any) -> list[tuple[str, int]]:
    """What was answered for each topic."""
    return [(each.name, each.error_code) for each in response.topics]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_answer_comes_when_all_partitions_have_leaders(version: int) -> None:
    """Not when the first of them has one."""
    cluster = SmallCluster()
    pending = ask(cluster, version, wanted("first", 2, 1), wanted("second", 1, 1))
    cluster.tell(topic("first", [1, -1]), topic("second"))

    assert pending.answers == []
    cluster.tell(topic("first", [1, 1]))

    assert codes(pending.answer) == [("first", 0), ("second", 0)]
    assert {each.error_message for each in pending.answer.topics} == {"" if version == 0 else None}
    assert len(cluster.delayed_topics) == 0


@pytest.mark.parametrize("umr_version", every_version(Api.UPDATE_METADATA))
def test_leaders_are_noticed_in_every_version_of_the_controllers_requests(umr_version: int) -> None:
    """Older ones list partitions without their topics around them."""
    cluster = SmallCluster()
    pending = ask(cluster, 7, wanted("first", 1, 1))

    cluster.tell(topic("first"), version=umr_version)

    assert codes(pending.answer) == [("first", 0)]


@pytest.mark.parametrize("version", VERSIONS)
def test_topics_without_leaders_are_late_when_the_time_is_over(version: int) -> None:
    """The others are not."""
    cluster = SmallCluster()
    pending = ask(cluster, version, wanted("slow", 1, 1), wanted("first", 1, 1))
    cluster.tell(topic("first"))

    assert cluster.delayed_topics.expire(TIMEOUT_MS / 1000 - 0.001) == 0
    assert cluster.delayed_topics.expire(TIMEOUT_MS / 1000) == 1

    assert codes(pending.answer) == [("slow", ErrorCode.REQUEST_TIMED_OUT), ("first", 0)]
    assert pending.answer.topics[0].num_partitions == -1


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_a_client_without_time_is_told_that_it_is_over(version: int, timeout_ms: int) -> None:
    """The topic is created all the same."""
    cluster = SmallCluster()

    response = ask(cluster, version, wanted("first", 1, 1), timeout_ms=timeout_ms)

    assert codes(response) == [("first", ErrorCode.REQUEST_TIMED_OUT)]
    assert list(cluster.zookeeper.created) == ["first"]


@pytest.mark.parametrize("version", VERSIONS)
def test_another_broker_than_the_controller_refuses_each_topic(version: int) -> None:
    """Clients look for the controller then."""
    cluster = SmallCluster()
    cluster.zookeeper.is_controller = False

    response = ask(cluster, version, wanted("first"), wanted("second"))

    assert codes(response) == [("first", ErrorCode.NOT_CONTROLLER), ("second", ErrorCode.NOT_CONTROLLER)]
    assert cluster.zookeeper.created == {}


@pytest.mark.parametrize("version", range(1, 8))
def test_validation_creates_nothing_and_waits_for_nothing(version: int) -> None:
    """It answers as the creation would, without an id."""
    cluster = SmallCluster()

    response = ask(cluster, version, wanted("first", 3, 1), wanted("bad", configs={"no": "1"}), validate_only=True)

    assert codes(response) == [("first", 0), ("bad", ErrorCode.INVALID_CONFIG)]
    assert cluster.zookeeper.created == {}
    assert response.topics[0].num_partitions == (3 if version >= 5 else -1)
    assert response.topics[0].topic_id == UUID_ZERO


@pytest.mark.parametrize("version", VERSIONS)
def test_each_topic_has_its_own_outcome(version: int) -> None:
    """A name given twice is refused both times, and the others are not affected."""
    cluster = SmallCluster()
    cluster.tell(topic("good"))
    cluster.zookeeper.refusals["there"] = KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, "there")

    pending = ask(
        cluster,
        version,
        wanted("twice"),
        wanted("good", 1, 1),
        wanted("there"),
        wanted("twice"),
        wanted("null", configs={"retention.ms": None, "segment.ms": "9"}),
        wanted("config", configs={"retention.ms": "many"}),
    )

    assert codes(pending.answer) == [
        ("twice", ErrorCode.INVALID_REQUEST),
        ("good", ErrorCode.NONE),
        ("there", ErrorCode.TOPIC_ALREADY_EXISTS),
        ("twice", ErrorCode.INVALID_REQUEST),
        ("null", ErrorCode.INVALID_CONFIG),
        ("config", ErrorCode.INVALID_CONFIG),
    ]
    if version >= 1:
        assert "retention.ms" in pending.answer.topics[4].error_message
        assert 'retention.ms = "many"' in pending.answer.topics[5].error_message
    assert list(cluster.zookeeper.created) == ["good"]


@pytest.mark.parametrize("version", VERSIONS)
def test_an_assignment_is_handed_on(version: int) -> None:
    """With counts of -1, as clients send them with it."""
    cluster = SmallCluster()
    cluster.tell(topic("first", [1, 1]))

    pending = ask(cluster, version, wanted("first", assignment={0: [1, 2], 1: [2, 1]}))

    assert codes(pending.answer) == [("first", 0)]
    assert cluster.zookeeper.created["first"].assignment == {0: [1, 2], 1: [2, 1]}
    assert pending.answer.topics[0].replication_factor == (2 if version >= 5 else -1)


def test_a_partition_that_is_assigned_twice_is_refused() -> None:
    """Which of the two was meant?"""
    twice = CreatableTopic(
        name="first",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[1]) for _ in range(2)],
        configs=[],
    )

    assert codes(ask(SmallCluster(), 7, twice)) == [("first", ErrorCode.INVALID_REPLICA_ASSIGNMENT)]


@pytest.mark.parametrize("version", VERSIONS)
def test_counts_and_options_of_the_new_topic_are_returned_from_version_5(version: int) -> None:
    """And its id from version 7."""
    cluster = SmallCluster(log_retention_bytes="4096")
    cluster.tell(topic("first", [1, 1, 1]))

    pending = ask(cluster, version, wanted("first", 3, 1, configs={"segment.ms": "60000"}))

    (created,) = pending.answer.topics
    assert created.topic_id == (topic_id("first") if version >= 7 else UUID_ZERO)
    if version < 5:
        assert (created.num_partitions, created.replication_factor, created.configs) == (-1, -1, [])
        return
    assert (created.num_partitions, created.replication_factor) == (3, 1)
    configs = {each.name: each for each in created.configs}
    assert list(configs) == list(TOPIC_OPTIONS)
    assert (configs["segment.ms"].value, configs["segment.ms"].config_source) == ("60000", ConfigSource.TOPIC)
    assert (configs["retention.bytes"].value, configs["retention.bytes"].config_source) == (
        "4096",
        ConfigSource.STATIC_BROKER,
    )
    assert configs["cleanup.policy"].config_source == ConfigSource.DEFAULT
    assert not any(each.read_only or each.is_sensitive for each in created.configs)


@pytest.mark.parametrize(("name", "is_warned"), [("a.b", True), ("a_b", True), ("a-b", False)])
def test_names_with_dots_and_underscores_are_warned_of(name: str, is_warned: bool) -> None:
    """In the log, where the operator reads it."""
    with structlog.testing.capture_logs() as lines:
        ask(SmallCluster(), 7, wanted(name), timeout_ms=0)

    assert any(line["event"] == "topic_name_may_collide" for line in lines) is is_warned
    assert [line["resource"] for line in lines if line["event"] == "topic_created"] == [f"Topic:{name}"]


def test_many_topics_in_one_request_are_waited_for_at_little_cost() -> None:
    """Each condition is looked at until it is met, and never again."""
    cluster = SmallCluster()
    names = [f"topic-{number}" for number in range(500)]
    pending = ask(cluster, 7, *(wanted(name, 1, 1) for name in names))

    for name in names:
        assert pending.answers == []
        cluster.tell(topic(name))

    assert len(pending.answer.topics) == len(names)
