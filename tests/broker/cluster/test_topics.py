"""Creating, enlarging and deleting topics: what is checked, and what stands in ZooKeeper afterwards."""

from __future__ import annotations

import pytest
from tests.broker.cluster.facade import Facade
from tests.broker.sessions import Connect

from ottla.broker.cluster import znodes
from ottla.broker.cluster.operations import MultiError, NodeStat
from ottla.broker.cluster.topics import TopicSpec
from ottla.broker.cluster.zookeeper import Watch
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.primitives import UUID_ZERO, uuid_to_text


def refused(facade: Facade, topic: TopicSpec) -> ErrorCode:
    """Return the code with which a topic is refused; nothing may be left behind."""
    with pytest.raises(KafkaError) as caught:
        facade.cluster.create_topic(topic)
    assert facade.zookeeper.children(znodes.TOPICS) == []
    assert facade.zookeeper.children("/config/topics") == []
    return caught.value.code


def test_a_topic_stands_in_zookeeper_as_kafka_writes_it(connect: Connect) -> None:
    """Assignment, id and config."""
    facade = Facade(connect(), brokers=(1, 2))
    created = facade.cluster.create_topic(
        TopicSpec("orders", assignment={0: [1, 2], 1: [2, 1]}, configs={"retention.ms": "1000"})
    )
    text = uuid_to_text(created.id)
    assert (
        facade.zookeeper.read("/brokers/topics/orders").data
        == (
            f'{{"version":3,"topic_id":"{text}","partitions":{{"0":[1,2],"1":[2,1]}},'
            f'"adding_replicas":{{}},"removing_replicas":{{}}}}'
        ).encode()
    )
    assert facade.zookeeper.read("/config/topics/orders").data == b'{"version":1,"config":{"retention.ms":"1000"}}'
    assert created.replication_factor == 2
    assert created.config.retention_ms == 1000


def test_counts_are_the_brokers_own_by_default(connect: Connect) -> None:
    """-1 stands for num.partitions and default.replication.factor."""
    facade = Facade(connect(), {"num.partitions": "3", "default.replication.factor": "2"}, brokers=(1, 2))
    created = facade.cluster.create_topic(TopicSpec("orders"))
    assert sorted(created.assignment) == [0, 1, 2]
    assert created.replication_factor == 2


def test_impossible_topics_are_refused_and_leave_nothing(connect: Connect) -> None:
    """Each mistake has Kafka's code."""
    facade = Facade(connect(), brokers=(1, 2))
    assert refused(facade, TopicSpec("a b")) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert refused(facade, TopicSpec("a", 0, 1)) is ErrorCode.INVALID_PARTITIONS
    assert refused(facade, TopicSpec("a", 1, 3)) is ErrorCode.INVALID_REPLICATION_FACTOR
    assert refused(facade, TopicSpec("a", 1, 0)) is ErrorCode.INVALID_REPLICATION_FACTOR
    assert refused(facade, TopicSpec("a", 1, 1, assignment={0: [1]})) is ErrorCode.INVALID_REQUEST
    assignments: list[dict[int, list[int]]] = [{1: [1]}, {0: []}, {0: [1, 1]}, {0: [1], 1: [1, 2]}, {0: [9]}]
    for assignment in assignments:
        assert refused(facade, TopicSpec("a", assignment=assignment)) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert refused(facade, TopicSpec("a", 1, 1, configs={"retention.ms": "soon"})) is ErrorCode.INVALID_CONFIG
    assert refused(facade, TopicSpec("a", 1, 1, configs={"no.such.option": "1"})) is ErrorCode.INVALID_CONFIG


def test_brokers_that_registered_a_moment_ago_get_replicas(connect: Connect) -> None:
    """The metadata does not have them yet: without them, the first topic after a start would be refused."""
    facade = Facade(connect(), {"ottla.drained.brokers": "4"}, brokers=(1,))
    for broker in (1, 2, 3, 4):
        node = znodes.BrokerNode(host="localhost", port=9092 + broker)
        facade.zookeeper.create(znodes.broker_path(broker), node.encode())

    placed = facade.cluster.create_topic(TopicSpec("placed", 1, 3))
    assigned = facade.cluster.create_topic(TopicSpec("assigned", assignment={0: [3, 1]}))
    added = facade.cluster.create_partitions("assigned", 2)

    assert sorted(placed.assignment[0]) == [1, 2, 3]
    assert assigned.assignment == {0: [3, 1]}
    assert len(added[1]) == 2
    with pytest.raises(KafkaError):
        facade.cluster.create_topic(TopicSpec("too-many", 1, 4))


def test_names_are_taken_once(connect: Connect) -> None:
    """Also those that differ only in dots and underscores."""
    facade = Facade(connect())
    facade.cluster.create_topic(TopicSpec("a.b", 1, 1))
    for name, code in [("a.b", ErrorCode.TOPIC_ALREADY_EXISTS), ("a_b", ErrorCode.INVALID_TOPIC_EXCEPTION)]:
        with pytest.raises(KafkaError) as caught:
            facade.cluster.create_topic(TopicSpec(name, 1, 1))
        assert caught.value.code is code
    facade.cluster.create_topic(TopicSpec("a-b", 1, 1))


def test_validating_writes_nothing(connect: Connect) -> None:
    """The answer says what would be made."""
    facade = Facade(connect())
    checked = facade.cluster.create_topic(TopicSpec("a", 2, 1), validate_only=True)
    assert (checked.id, sorted(checked.assignment)) == (UUID_ZERO, [0, 1])
    assert facade.zookeeper.children(znodes.TOPICS) == []


def test_a_config_left_over_is_replaced(connect: Connect) -> None:
    """A config node without its topic does not keep the name from being used."""
    facade = Facade(connect())
    facade.zookeeper.create("/config/topics/a", b'{"version":1,"config":{"retention.ms":"5"}}')
    facade.cluster.create_topic(TopicSpec("a", 1, 1))
    assert facade.zookeeper.read("/config/topics/a").data == b'{"version":1,"config":{}}'


def test_a_creation_whose_answer_was_lost_is_recognised(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic that is there has our id."""
    facade = Facade(connect())
    multi = facade.zookeeper.multi

    def answer_lost(operations: list[object]) -> object:
        try:
            multi(operations)  # type: ignore[arg-type]
        except MultiError:
            pytest.fail("the first try works")
        return multi(operations)  # type: ignore[arg-type]

    monkeypatch.setattr(facade.zookeeper, "multi", answer_lost)
    created = facade.cluster.create_topic(TopicSpec("a", 1, 1))
    assert uuid_to_text(created.id).encode() in facade.zookeeper.read("/brokers/topics/a").data


def test_a_deletion_is_a_mark(connect: Connect) -> None:
    """Twice is not wrong; what does not exist cannot be deleted."""
    facade = Facade(connect())
    facade.cluster.create_topic(TopicSpec("a", 1, 1))
    facade.cluster.delete_topic("a")
    facade.cluster.delete_topic("a")
    assert facade.zookeeper.read("/admin/delete_topics/a").data == b""
    with pytest.raises(KafkaError) as caught:
        facade.cluster.delete_topic("b")
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("name", ["no/topic", "..", "", "a" * 300])
def test_a_topic_that_cannot_exist_is_unknown(connect: Connect, name: str) -> None:
    """As in Kafka: whether the name is possible matters only for a topic that is created."""
    cluster = Facade(connect()).cluster
    for change in (cluster.delete_topic, lambda topic: cluster.create_partitions(topic, 2)):
        with pytest.raises(KafkaError) as caught:
            change(name)
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_that_goes_while_it_is_marked_leaves_no_mark(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mark without a topic would be the end of the next topic of that name."""
    facade = Facade(connect())
    facade.cluster.create_topic(TopicSpec("a", 1, 1))
    exists = facade.zookeeper.exists

    def exists_and_goes(path: str, watch: Watch | None = None) -> NodeStat | None:
        stat = exists(path, watch)
        if stat is not None:
            facade.zookeeper.delete(path)
        return stat

    monkeypatch.setattr(facade.zookeeper, "exists", exists_and_goes)
    with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        facade.cluster.delete_topic("a")
    assert facade.zookeeper.children("/admin/delete_topics") == []


def test_deletion_can_be_switched_off(connect: Connect) -> None:
    """With delete.topic.enable."""
    facade = Facade(connect(), {"delete.topic.enable": "false"})
    facade.cluster.create_topic(TopicSpec("a", 1, 1))
    with pytest.raises(KafkaError) as caught:
        facade.cluster.delete_topic("a")
    assert caught.value.code is ErrorCode.TOPIC_DELETION_DISABLED


def test_partitions_are_added_behind_those_there(connect: Connect) -> None:
    """Chosen or given, and the others are left alone."""
    facade = Facade(connect(), brokers=(1, 2))
    created = facade.cluster.create_topic(TopicSpec("a", assignment={0: [2]}))
    assert facade.cluster.create_partitions("a", 2, [[1]], validate_only=True) == {1: [1]}
    assert facade.cluster.create_partitions("a", 2, [[1]]) == {1: [1]}
    # The round goes on from the leader of partition 0, which is the second of two brokers.
    assert facade.cluster.create_partitions("a", 4) == {2: [2], 3: [1]}
    node = znodes.TopicNode.decode(facade.zookeeper.read("/brokers/topics/a").data, "")
    assert node.partitions == {0: [2], 1: [1], 2: [2], 3: [1]}
    assert node.topic_id == uuid_to_text(created.id)


def test_impossible_additions_are_refused(connect: Connect) -> None:
    """A topic never gets fewer partitions."""
    facade = Facade(connect(), brokers=(1, 2))
    facade.cluster.create_topic(TopicSpec("a", 2, 1))

    def code(topic: str, count: int, assignment: list[list[int]] | None = None) -> ErrorCode:
        with pytest.raises(KafkaError) as caught:
            facade.cluster.create_partitions(topic, count, assignment)
        return caught.value.code

    assert code("b", 2) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code("a", 2) is ErrorCode.INVALID_PARTITIONS
    assert code("a", 1) is ErrorCode.INVALID_PARTITIONS
    assert code("a", 4, [[1]]) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert code("a", 3, [[1, 2]]) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert code("a", 3, [[9]]) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    facade.zookeeper.write(
        "/brokers/topics/a",
        b'{"version":3,"topic_id":"AAAAAAAAAAAAAAAAAAAAAQ","partitions":{"0":[1,2]},"adding_replicas":{"0":[2]}}',
    )
    assert code("a", 3) is ErrorCode.REASSIGNMENT_IN_PROGRESS
    facade.cluster.create_topic(TopicSpec("c", 1, 1))
    facade.cluster.delete_topic("c")
    assert code("c", 3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
