"""The metadata cache: what requests of the controller make of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.kit.examples import examples

from ottla.broker.cluster.metadata import BrokerEndpoint, MetadataCache
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.update_metadata import (
    LEADER_DURING_DELETE,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

ID = bytes(range(16))
OTHER_ID = bytes(range(16, 32))


def partition(index: int, leader: int = 1, topic: str = "") -> UpdateMetadataPartitionState:
    """Make the state of a partition."""
    return UpdateMetadataPartitionState(
        topic_name=topic,
        partition_index=index,
        controller_epoch=1,
        leader=leader,
        leader_epoch=4,
        isr=[1, 2],
        zk_version=9,
        replicas=[1, 2, 3],
        offline_replicas=[3],
    )


def topic(name: str, *partitions: UpdateMetadataPartitionState, topic_id: bytes = ID) -> UpdateMetadataTopicState:
    """Make the state of a topic."""
    return UpdateMetadataTopicState(topic_name=name, topic_id=topic_id, partition_states=list(partitions))


def request(*topics: UpdateMetadataTopicState, brokers: tuple[int, ...] = (1,), kind: int = 0) -> UpdateMetadataRequest:
    """Make a request."""
    return UpdateMetadataRequest(
        controller_id=1,
        controller_epoch=5,
        type=kind,
        topic_states=list(topics),
        live_brokers=[broker(each) for each in brokers],
    )


def broker(broker_id: int) -> UpdateMetadataBroker:
    """Make a live broker with two listeners."""
    return UpdateMetadataBroker(
        id=broker_id,
        endpoints=[
            UpdateMetadataEndpoint(port=9092, host=f"h{broker_id}", listener="PLAINTEXT", security_protocol=0),
            UpdateMetadataEndpoint(port=9093, host=f"e{broker_id}", listener="EXTERNAL", security_protocol=1),
        ],
        rack="r1" if broker_id == 1 else None,
    )


def test_brokers_are_found_by_listener() -> None:
    """The list of live brokers replaces the one before."""
    cache = MetadataCache()
    cache.update(request(brokers=(1, 2)))
    assert cache.snapshot.endpoint(2, "EXTERNAL") == BrokerEndpoint("e2", 9093, 1)
    assert cache.snapshot.endpoint(2, "OTHER") is None
    assert [(each.id, each.rack, where.host) for each, where in cache.snapshot.brokers_with("PLAINTEXT")] == [
        (1, "r1", "h1"),
        (2, None, "h2"),
    ]
    cache.update(request(brokers=(2,)))
    assert cache.snapshot.endpoint(1, "PLAINTEXT") is None
    assert cache.snapshot.controller_epoch == 5


def test_partitions_are_added_to_those_known() -> None:
    """A request tells what changed, and a snapshot taken before stays as it was."""
    cache = MetadataCache()
    cache.update(request(topic("a", partition(0))))
    before = cache.snapshot
    cache.update(request(topic("a", partition(1, leader=2)), topic("b", partition(0), topic_id=OTHER_ID)))

    found = cache.snapshot.partition("a", 1)
    assert found is not None
    assert (found.leader, found.leader_epoch, found.isr, found.replicas) == (2, 4, [1, 2], [1, 2, 3])
    assert (found.offline_replicas, found.partition_epoch) == ([3], 9)
    assert sorted(cache.snapshot.topics) == ["a", "b"]
    assert cache.snapshot.topic_by_id(OTHER_ID) is cache.snapshot.topic("b")
    assert before.partition("a", 1) is None
    assert before.topic("b") is None


def test_what_a_request_does_not_mention_is_not_copied() -> None:
    """A change of one topic among thousands costs no more than its own partitions."""
    cache = MetadataCache()
    cache.update(request(topic("a", partition(0)), topic("b", partition(0), topic_id=OTHER_ID)))
    before = cache.snapshot
    cache.update(request(topic("b", partition(0, leader=2), topic_id=OTHER_ID)))
    assert cache.snapshot.topic("a") is before.topic("a")
    assert cache.snapshot.topic_names is before.topic_names
    assert cache.snapshot.topic("b") is not before.topic("b")


def test_deleted_partitions_are_dropped_and_reported() -> None:
    """The topic goes with its last partition, and so does its id."""
    cache = MetadataCache()
    cache.update(request(topic("a", partition(0), partition(1))))
    assert cache.update(request(topic("a", partition(0, LEADER_DURING_DELETE)))) == [TopicPartition("a", 0)]
    assert cache.snapshot.topic("a") is not None
    deleted = cache.update(request(topic("a", partition(0, LEADER_DURING_DELETE), partition(1, LEADER_DURING_DELETE))))
    assert deleted == [TopicPartition("a", 1)]
    assert cache.snapshot.topic("a") is None
    assert cache.snapshot.topic_by_id(ID) is None


def test_a_topic_made_again_is_another_topic() -> None:
    """Partitions of its predecessor are not its own."""
    cache = MetadataCache()
    cache.update(request(topic("a", partition(0), partition(1))))
    cache.update(request(topic("a", partition(0), topic_id=OTHER_ID)))
    found = cache.snapshot.topic("a")
    assert found is not None
    assert (found.id, list(found.partitions)) == (OTHER_ID, [0])
    assert cache.snapshot.topic_by_id(ID) is None


def test_a_full_request_replaces_all_topics() -> None:
    """What it does not mention is deleted."""
    cache = MetadataCache()
    cache.update(request(topic("a", partition(0))))
    assert cache.update(request(topic("b", partition(0), topic_id=OTHER_ID), kind=2)) == [TopicPartition("a", 0)]
    assert list(cache.snapshot.topics) == ["b"]
    assert cache.snapshot.topic_by_id(ID) is None


def test_old_versions_name_the_topic_in_each_partition() -> None:
    """They know no ids, and brokers have one endpoint without a name."""
    cache = MetadataCache()
    cache.update(
        UpdateMetadataRequest(
            controller_id=1,
            controller_epoch=1,
            ungrouped_partition_states=[partition(0, topic="a"), partition(1, topic="a"), partition(0, topic="b")],
            live_brokers=[
                UpdateMetadataBroker(id=1, v0_host="h", v0_port=1),
                UpdateMetadataBroker(id=2, endpoints=[UpdateMetadataEndpoint(port=2, host="h", security_protocol=1)]),
            ],
        )
    )
    found = cache.snapshot.topic("a")
    assert found is not None
    assert sorted(found.partitions) == [0, 1]
    assert cache.snapshot.topic_names == {}
    assert cache.snapshot.endpoint(1, "PLAINTEXT") == BrokerEndpoint("h", 1, 0)
    assert cache.snapshot.endpoint(2, "SSL") == BrokerEndpoint("h", 2, 1)


UPDATES = st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.sampled_from([-2, -1, 1, 2]))))


@examples(100)
@given(UPDATES)
def test_the_cache_is_what_the_last_word_on_each_partition_says(updates: list[list[tuple[str, int, int]]]) -> None:
    """Whatever the order and the grouping of requests."""
    cache = MetadataCache()
    model: dict[TopicPartition, int] = {}
    for update in updates:
        states = [topic(name, partition(index, leader), topic_id=name.encode() * 16) for name, index, leader in update]
        expected_deleted = []
        for name, index, leader in update:
            key = TopicPartition(name, index)
            if leader != LEADER_DURING_DELETE:
                model[key] = leader
            elif model.pop(key, None) is not None:
                expected_deleted.append(key)
        assert cache.update(request(*states)) == expected_deleted
    snapshot = cache.snapshot
    leaders = {
        TopicPartition(found.name, index): each.leader
        for found in snapshot.topics.values()
        for index, each in found.partitions.items()
    }
    assert leaders == model
    assert snapshot.topic_names == {found.id: found.name for found in snapshot.topics.values()}
