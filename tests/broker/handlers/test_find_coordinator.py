"""FindCoordinator, version by version: the leader of the group's partition, waited for where it will soon be there."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.handlers.small_cluster import BROKER_ID, SmallCluster, every_version, live_broker, topic

from ottla.broker.coordination.placement import CONSUMER_OFFSETS, TRANSACTION_STATE
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest

GROUP, TRANSACTION, SHARE, OTHER = 0, 1, 2, 7
NOBODY = (-1, "", -1)
OTHER_BROKER = 2


@pytest.fixture
def cluster() -> SmallCluster:
    """Two brokers that live."""
    cluster = SmallCluster(offsets_topic_num_partitions="1")
    cluster.brokers.append(live_broker(OTHER_BROKER, "PLAINTEXT", "INSIDE"))
    cluster.tell()
    return cluster


def body(version: int, key_type: int, *keys: str) -> FindCoordinatorRequest:
    """Ask for keys; before version 4 there is one."""
    if version >= 4:
        return FindCoordinatorRequest(key_type=key_type, coordinator_keys=list(keys))
    return FindCoordinatorRequest(key_type=key_type, key=keys[0])


def rows(version: int, response: Any) -> list[tuple[int, tuple[int, str, int]]]:
    """Return for each key the code and who coordinates."""
    found = response.coordinators if version >= 4 else [response]
    return [(each.error_code, (each.node_id, each.host, each.port)) for each in found]


@pytest.mark.parametrize("version", every_version(Api.FIND_COORDINATOR))
def test_the_leader_of_the_partition_coordinates(cluster: SmallCluster, version: int) -> None:
    """It is named by the listener that the request came in on."""
    cluster.tell(topic(CONSUMER_OFFSETS, [OTHER_BROKER]))
    response = cluster.ask(Api.FIND_COORDINATOR, version, body(version, GROUP, "group"))
    assert [(0, (OTHER_BROKER, f"broker-{OTHER_BROKER}", 9092))] == rows(version, response)


def test_the_topic_is_created_and_its_leader_waited_for(cluster: SmallCluster) -> None:
    """With the options of the broker, and no more replicas than there are brokers; nobody has to ask twice."""
    pending = cluster.ask(Api.FIND_COORDINATOR, 4, body(4, GROUP, "group"))
    created = cluster.zookeeper.created[CONSUMER_OFFSETS]
    assert (
        created.partition_count,
        created.replication_factor,
        created.configs["cleanup.policy"],
    ) == (1, 2, "compact")
    assert pending.answers == []

    cluster.tell(topic(CONSUMER_OFFSETS, [OTHER_BROKER]))

    assert [(0, (OTHER_BROKER, f"broker-{OTHER_BROKER}", 9092))] == rows(4, pending.answer)


def test_brokers_that_are_away_count_when_the_topic_is_created(cluster: SmallCluster) -> None:
    """A cluster of three that has two for the moment does not get offsets with two replicas for ever."""
    cluster.tell(topic("placed", replicas=[BROKER_ID, 3]))
    cluster.ask(Api.FIND_COORDINATOR, 4, body(4, GROUP, "group"))
    assert cluster.zookeeper.created[CONSUMER_OFFSETS].replication_factor == 3


def test_no_leader_in_time_is_told(cluster: SmallCluster) -> None:
    """The client looks again later."""
    pending = cluster.ask(Api.FIND_COORDINATOR, 4, body(4, GROUP, "group"))
    cluster.delayed_topics.expire(60)
    assert rows(4, pending.answer) == [(ErrorCode.COORDINATOR_NOT_AVAILABLE, NOBODY)]


def test_this_broker_names_itself_when_it_has_read_the_groups(cluster: SmallCluster) -> None:
    """A client that came earlier would be sent away to wait."""
    cluster.tell(topic(CONSUMER_OFFSETS, [BROKER_ID]))
    pending = cluster.ask(Api.FIND_COORDINATOR, 4, body(4, GROUP, "group"))
    assert pending.answers == []

    groups = cluster.services.groups
    groups.became_leader(0, 0)
    shard = groups.shards.get(0)
    assert shard is not None
    shard.is_loading = False
    cluster.delayed_topics.check(CONSUMER_OFFSETS)

    assert [(0, (BROKER_ID, f"broker-{BROKER_ID}", 9092))] == rows(4, pending.answer)


def test_a_topic_that_cannot_be_created_is_not_waited_for(cluster: SmallCluster) -> None:
    """Its error has no place in the answer, which says that there is no coordinator."""
    cluster.zookeeper.refusals[CONSUMER_OFFSETS] = KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR)
    response = cluster.ask(Api.FIND_COORDINATOR, 4, body(4, GROUP, "group"))
    assert rows(4, response) == [(ErrorCode.COORDINATOR_NOT_AVAILABLE, NOBODY)]


@pytest.mark.parametrize("version", range(1, 7))
def test_the_leader_of_its_partition_coordinates_a_transactional_id(cluster: SmallCluster, version: int) -> None:
    """The topic of transactions is another one than that of groups."""
    cluster.tell(topic(CONSUMER_OFFSETS, [OTHER_BROKER]))
    late = cluster.ask(Api.FIND_COORDINATOR, version, body(version, TRANSACTION, "id"))
    assert list(cluster.zookeeper.created) == [TRANSACTION_STATE]
    cluster.tell(topic(TRANSACTION_STATE, [OTHER_BROKER]))
    (response,) = late.answers
    assert rows(version, response) == [(0, (OTHER_BROKER, f"broker-{OTHER_BROKER}", 9092))]


@pytest.mark.parametrize("version", range(4, 7))
def test_every_key_is_answered(cluster: SmallCluster, version: int) -> None:
    """In the order in which they were asked for, and other kinds of keys as a mistake."""
    cluster.tell(topic(CONSUMER_OFFSETS, [OTHER_BROKER]))
    response = cluster.ask(Api.FIND_COORDINATOR, version, body(version, GROUP, "first", "second"))
    assert [each.key for each in response.coordinators] == ["first", "second"]
    response = cluster.ask(Api.FIND_COORDINATOR, version, body(version, OTHER, "first"))
    assert rows(version, response) == [(ErrorCode.INVALID_REQUEST, NOBODY)]
    share = ErrorCode.COORDINATOR_NOT_AVAILABLE if version >= 6 else ErrorCode.INVALID_REQUEST
    assert [(share, NOBODY)] == rows(
        version, cluster.ask(Api.FIND_COORDINATOR, version, body(version, SHARE, "group:topic:0"))
    )
