"""Metadata, version by version."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.handlers.small_cluster import LISTENER, SmallCluster, every_version, live_broker, topic, topic_id

from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.primitives import UUID_ZERO

VERSIONS = every_version(Api.METADATA)


def ask(cluster: SmallCluster, version: int, *names: str, **options: Any) -> Any:
    """Ask for topics by name."""
    wanted = [MetadataRequestTopic(name=name) for name in names]
    listener = options.pop("listener", LISTENER)
    return cluster.ask(Api.METADATA, version, MetadataRequest(topics=wanted, **options), listener=listener)


def ask_all(cluster: SmallCluster, version: int) -> Any:
    """Ask for all topics in the way of a version."""
    return cluster.ask(Api.METADATA, version, MetadataRequest(topics=[] if version == 0 else None))


def by_id(name: str) -> MetadataRequestTopic:
    """A topic that is asked for by its id alone."""
    return MetadataRequestTopic(name=None, topic_id=topic_id(name))


@pytest.mark.parametrize("version", VERSIONS)
def test_all_topics_are_described_with_brokers_and_controller(version: int) -> None:
    """What each version has room for, and nothing else."""
    cluster = SmallCluster()
    cluster.brokers = [live_broker(1, rack="r1"), live_broker(2)]
    cluster.tell(topic("first", [1, 2], replicas=[1, 2], offline=[]), topic("__consumer_offsets"))

    response = ask_all(cluster, version)

    assert [(each.node_id, each.host, each.port) for each in response.brokers] == [
        (1, "broker-1", 9092),
        (2, "broker-2", 9092),
    ]
    assert [each.rack for each in response.brokers] == ([None, None] if version == 0 else ["r1", None])
    assert response.cluster_id == (None if version < 2 else "a-cluster-id")
    assert response.controller_id == (-1 if version < 1 else 1)
    first, internal = response.topics
    assert (first.error_code, first.name) == (0, "first")
    assert first.topic_id == (UUID_ZERO if version < 10 else topic_id("first"))
    assert (first.is_internal, internal.is_internal) == (False, version >= 1)
    assert [(each.error_code, each.partition_index, each.leader_id) for each in first.partitions] == [
        (0, 0, 1),
        (0, 1, 2),
    ]
    assert [each.leader_epoch for each in first.partitions] == [-1 if version < 7 else 7] * 2
    assert first.partitions[0].replica_nodes == first.partitions[0].isr_nodes == [1, 2]


@pytest.mark.parametrize("version", VERSIONS)
def test_an_empty_list_is_everything_in_version_0_and_nothing_later(version: int) -> None:
    """Clients bootstrap with an empty list."""
    cluster = SmallCluster()
    cluster.tell(topic("first"))

    assert len(ask(cluster, version).topics) == (1 if version == 0 else 0)
    assert len(ask(cluster, version).brokers) == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_every_topic_is_answered_once(version: int) -> None:
    """Known, unknown, wrong and repeated names."""
    cluster = SmallCluster(auto_create_topics_enable="false")
    cluster.tell(topic("first"))

    response = ask(cluster, version, "first", "nothing", "not/a/name", "first", "")

    assert [(each.name, each.error_code) for each in response.topics] == [
        ("first", ErrorCode.NONE),
        ("nothing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("not/a/name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_partition_without_a_live_leader_says_so(version: int) -> None:
    """No leader at all, or one that is not alive; the epoch is told all the same."""
    cluster = SmallCluster()
    cluster.tell(topic("first", [-1, 9]))

    partitions = ask(cluster, version, "first").topics[0].partitions

    assert [each.error_code for each in partitions] == [ErrorCode.LEADER_NOT_AVAILABLE] * 2
    assert [each.leader_id for each in partitions] == [-1, -1]
    assert [each.leader_epoch for each in partitions] == [-1 if version < 7 else 7] * 2


@pytest.mark.parametrize("version", VERSIONS)
def test_brokers_and_leaders_are_those_of_the_listener(version: int) -> None:
    """A leader that lacks the listener is alive, and of no use to this client."""
    cluster = SmallCluster()
    cluster.brokers = [live_broker(1, LISTENER, "INSIDE"), live_broker(2)]
    cluster.tell(topic("first", [1, 2], replicas=[1]))

    response = ask(cluster, version, "first", listener="INSIDE")

    assert [each.node_id for each in response.brokers] == [1]
    expected = ErrorCode.LISTENER_NOT_FOUND if version >= 6 else ErrorCode.LEADER_NOT_AVAILABLE
    assert [(each.error_code, each.leader_id) for each in response.topics[0].partitions] == [(0, 1), (expected, -1)]


@pytest.mark.parametrize("version", VERSIONS)
def test_dead_replicas_are_listed_from_version_1(version: int) -> None:
    """Version 0 leaves them out and calls that an error."""
    cluster = SmallCluster()
    cluster.tell(topic("first", replicas=[1, 2, 3], isr=[1, 2], offline=[3]))

    (partition,) = ask(cluster, version, "first").topics[0].partitions

    if version == 0:
        assert partition.error_code == ErrorCode.REPLICA_NOT_AVAILABLE
        assert (partition.replica_nodes, partition.isr_nodes) == ([1], [1])
    else:
        assert partition.error_code == ErrorCode.NONE
        assert (partition.replica_nodes, partition.isr_nodes) == ([1, 2, 3], [1, 2])
        assert partition.offline_replicas == ([3] if version >= 5 else [])
    assert partition.leader_id == 1


def test_topics_are_found_by_id_from_version_12() -> None:
    """An id that no topic has is answered without a name."""
    cluster = SmallCluster()
    cluster.tell(topic("first"), topic("second"))
    wanted = [by_id("first"), by_id("gone"), MetadataRequestTopic(name="second"), MetadataRequestTopic(name=None)]

    response = cluster.ask(Api.METADATA, 12, MetadataRequest(topics=wanted))

    assert [(each.name, each.topic_id, each.error_code) for each in response.topics] == [
        ("first", topic_id("first"), ErrorCode.NONE),
        (None, topic_id("gone"), ErrorCode.UNKNOWN_TOPIC_ID),
        ("second", topic_id("second"), ErrorCode.NONE),
        (None, UUID_ZERO, ErrorCode.INVALID_REQUEST),
    ]
    assert cluster.zookeeper.created == {}


@pytest.mark.parametrize("version", [10, 11])
@pytest.mark.parametrize("odd", [by_id("first"), MetadataRequestTopic(name=None)])
def test_ids_make_a_request_of_version_10_or_11_invalid(version: int, odd: MetadataRequestTopic) -> None:
    """These versions have a place for ids and no lookup by them."""
    cluster = SmallCluster()
    cluster.tell(topic("first"))

    response = cluster.ask(Api.METADATA, version, MetadataRequest(topics=[odd, MetadataRequestTopic(name="first")]))

    assert [(each.name, each.error_code) for each in response.topics] == [
        ("", ErrorCode.INVALID_REQUEST),
        ("first", ErrorCode.INVALID_REQUEST),
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_missing_topic_is_created_with_the_defaults(version: int) -> None:
    """The client is to ask again."""
    cluster = SmallCluster()
    cluster.tell()

    (answer,) = ask(cluster, version, "fresh").topics

    assert (answer.name, answer.error_code, answer.partitions) == ("fresh", ErrorCode.LEADER_NOT_AVAILABLE, [])
    created = cluster.zookeeper.created["fresh"]
    assert (created.partition_count, created.replication_factor, created.configs) == (-1, -1, {})


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_that_does_not_know_the_cluster_waits_until_it_does(version: int) -> None:
    """An answer without brokers makes librdkafka forget them all, and one without the topic drop its messages."""
    cluster = SmallCluster(auto_create_topics_enable="false")
    pending = ask(cluster, version, "first")
    assert pending.answers == []
    cluster.tell(topic("first"))

    (answer,) = pending.answer.topics
    assert (answer.name, answer.error_code) == ("first", ErrorCode.NONE)
    assert [broker.node_id for broker in pending.answer.brokers] == [1]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_that_still_knows_nothing_denies_no_topic(version: int) -> None:
    """Clients ask again. Nothing is created on its word."""
    cluster = SmallCluster(auto_create_topics_enable="false")
    pending = ask(cluster, version, "first")
    cluster.delayed_topics.expire(float("inf"))

    (answer,) = pending.answer.topics
    assert (answer.name, answer.error_code) == ("first", ErrorCode.LEADER_NOT_AVAILABLE)
    assert pending.answer.brokers == []
    assert cluster.zookeeper.created == {}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_that_has_started_and_knows_nothing_says_so_at_once(version: int) -> None:
    """No controller can reach it, perhaps: whoever looks for the reason need not wait for each answer."""
    cluster = SmallCluster(auto_create_topics_enable="false")
    cluster.services.metadata.is_starting = False

    response = ask(cluster, version, "first")

    assert [(each.name, each.error_code) for each in response.topics] == [("first", ErrorCode.LEADER_NOT_AVAILABLE)]
    assert response.brokers == []


@pytest.mark.parametrize("version", range(4, 13))
def test_a_request_can_forbid_creation(version: int) -> None:
    """Tools only want to look."""
    cluster = SmallCluster()
    cluster.tell()

    (answer,) = ask(cluster, version, "fresh", allow_auto_topic_creation=False).topics

    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert cluster.zookeeper.created == {}


def test_the_broker_can_forbid_creation() -> None:
    """The request alone is not enough."""
    cluster = SmallCluster(auto_create_topics_enable="false")
    cluster.tell()

    (answer,) = ask(cluster, 12, "__consumer_offsets", allow_auto_topic_creation=True).topics

    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answer.is_internal


@pytest.mark.parametrize(
    ("raised", "answered"),
    [
        (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.LEADER_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.LEADER_NOT_AVAILABLE),
        (ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.INVALID_REPLICATION_FACTOR),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_a_lost_race_is_asked_for_again_and_other_failures_are_told(raised: ErrorCode, answered: ErrorCode) -> None:
    """Two clients may use a new topic at the same moment."""
    cluster = SmallCluster()
    cluster.tell()
    cluster.zookeeper.refusals["fresh"] = KafkaError(raised)

    assert ask(cluster, 12, "fresh").topics[0].error_code == answered


@pytest.mark.parametrize(("live_brokers", "replicas"), [(1, 1), (2, 2), (3, 3), (5, 3)])
def test_internal_topics_are_created_with_their_own_options(live_brokers: int, replicas: int) -> None:
    """A small cluster gets as many replicas as it can have."""
    cluster = SmallCluster(offsets_topic_num_partitions="7", transaction_state_log_num_partitions="5")
    cluster.brokers = [live_broker(broker_id) for broker_id in range(1, live_brokers + 1)]
    cluster.tell()

    response = ask(cluster, 12, "__consumer_offsets", "__transaction_state")

    assert [(each.error_code, each.is_internal) for each in response.topics] == [
        (ErrorCode.LEADER_NOT_AVAILABLE, True)
    ] * 2
    offsets, transactions = cluster.zookeeper.created.values()
    assert (offsets.partition_count, offsets.replication_factor) == (7, replicas)
    assert offsets.configs == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }
    assert (transactions.partition_count, transactions.replication_factor) == (5, replicas)
    assert transactions.configs == {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": str(min(2, replicas)),
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_whose_session_is_over_sends_clients_to_others(version: int) -> None:
    """It names neither itself nor itself as leader, until the controller names it again."""
    cluster = SmallCluster()
    cluster.brokers = [live_broker(1), live_broker(2)]
    cluster.tell(topic("first", [1, 2], replicas=[1, 2]))

    cluster.services.metadata.session_expired()

    response = ask(cluster, version, "first")
    assert [each.node_id for each in response.brokers] == [2]
    assert [(each.error_code, each.leader_id) for each in response.topics[0].partitions] == [
        (ErrorCode.LEADER_NOT_AVAILABLE, -1),
        (ErrorCode.REPLICA_NOT_AVAILABLE if version == 0 else 0, 2),
    ]
    cluster.services.metadata.session_renewed()
    assert [each.node_id for each in ask(cluster, version, "first").brokers] == [2]
    cluster.tell()
    response = ask(cluster, version, "first")
    assert [each.node_id for each in response.brokers] == [1, 2]
    assert [each.leader_id for each in response.topics[0].partitions] == [1, 2]
