"""Transactions in a cluster of two brokers of ours and one of Apache Kafka 3.9, which coordinate and lead either way.

Each broker leads one partition of each topic, internal ones included. So the names of transactional ids and groups say
who coordinates them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import count

import pytest
from confluent_kafka import KafkaError, Producer, TopicPartition
from tests.faults.replica_logs import replica_log
from tests.interop.clients import confluent
from tests.interop.mixed_cluster import KAFKA, OURS, MixedCluster
from tests.interop.transactions.librdkafka import producer, read, refused, send, wait_for_end
from tests.kit.broker_process import topic_name
from tests.kit.kafka_process import kafka_or_skip
from tests.kit.waiting import DEADLINE_S, until

from ottla.broker.coordination.placement import CONSUMER_OFFSETS, TRANSACTION_STATE, partition_for

# In `make test-all`: `make test` has confluent-kafka and aiokafka.
pytestmark = pytest.mark.long

REPLICAS = ((1, 2, 3), (2, 3, 1), (3, 1, 2))
LEADERS = tuple(replicas[0] for replicas in REPLICAS)
PARTITIONS = range(len(REPLICAS))
OPTIONS = (
    f"transaction.state.log.num.partitions={len(REPLICAS)}",
    f"offsets.topic.num.partitions={len(REPLICAS)}",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=200",
)
SESSION_S = 6
SHORT_MS = 1000
OFFSET_MAX = 2**63 - 1


@pytest.fixture(
    scope="module",
    params=[OURS, pytest.param(KAFKA, marks=pytest.mark.long)],
    ids=["ours-controls", "kafka-controls"],
)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    """A cluster with all internal topics, in which every broker leads its part."""
    kafka_or_skip()
    made = MixedCluster(tmp_path_factory.mktemp("mixed"), SESSION_S, *OPTIONS)
    try:
        made.start_with_controller(request.param)
        for internal in (TRANSACTION_STATE, CONSUMER_OFFSETS):
            made.create_topic(internal, REPLICAS, cleanup_policy="compact")
        yield made
    finally:
        made.close()


@pytest.fixture
def topic(cluster: MixedCluster) -> str:
    """A topic of which every broker leads one partition."""
    name = topic_name()
    cluster.create_topic(name, REPLICAS)
    return name


def name_for(broker: int, prefix: str) -> str:
    """Return a transactional id or group that a broker coordinates while it leads what it should."""
    names = (f"{prefix}-{number}" for number in count())
    return next(name for name in names if LEADERS[partition_for(name, len(REPLICAS))] == broker)


def begin(client: Producer, cluster: MixedCluster, topic: str, value: bytes, group: str, offset: int) -> None:
    """Begin a transaction with a value in every partition, and an offset of a group."""
    client.begin_transaction()
    for partition in PARTITIONS:
        send(client, topic, value, partition=partition)
    with confluent.consumer(cluster.bootstrap, group_id=group) as reader:
        metadata = reader.consumer_group_metadata()
        client.send_offsets_to_transaction([TopicPartition(topic, 0, offset)], metadata, DEADLINE_S)


def committed(cluster: MixedCluster, group: str, topic: str) -> int:
    """Return the offset that a group has committed, when it is certain; -1001 for none."""
    with confluent.consumer(cluster.bootstrap, group_id=group, isolation_level="read_committed") as client:
        (found,) = client.committed([TopicPartition(topic, 0)], DEADLINE_S)
        offset: int = found.offset
    return offset


def has_same_logs(cluster: MixedCluster, topic: str) -> bool:
    """Whether all replicas of a topic have the same bytes, and there are some."""
    of_brokers = [
        [replica_log(topic, 0, broker.partition_dir(topic, number), OFFSET_MAX).batches for number in PARTITIONS]
        for broker in cluster.brokers.values()
    ]
    return any(of_brokers[0]) and all(logs == of_brokers[0] for logs in of_brokers)


@pytest.mark.parametrize(
    ("coordinator", "group_coordinator"),
    [
        (OURS, KAFKA),
        (KAFKA, OURS),
        pytest.param(OURS, OURS, marks=pytest.mark.long),
        pytest.param(KAFKA, KAFKA, marks=pytest.mark.long),
    ],
    ids=lambda broker: "ours" if broker == OURS else "kafka",
)
def test_either_kind_coordinates_transactions_of_both(
    coordinator: int, group_coordinator: int, cluster: MixedCluster, topic: str
) -> None:
    """Partitions and groups of either kind get their markers, and verify who writes with either coordinator."""
    transactional_id, group = name_for(coordinator, topic), name_for(group_coordinator, topic)
    with producer(cluster.bootstrap, transactional_id) as client:
        for number, outcome in enumerate(("commit", "abort", "commit")):
            begin(client, cluster, topic, b"%d" % number, group, number + 10)
            if outcome == "commit":
                client.commit_transaction(DEADLINE_S)
            else:
                client.abort_transaction(DEADLINE_S)
            assert committed(cluster, group, topic) == (12 if number == 2 else 10)

    for partition in PARTITIONS:
        assert read(cluster.bootstrap, topic, partition=partition) == [b"0", b"2"]
        assert read(cluster.bootstrap, topic, "read_uncommitted", partition) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("coordinator", [OURS, KAFKA], ids=["ours", "kafka"])
def test_either_kind_fences_producers_at_both(coordinator: int, cluster: MixedCluster, topic: str) -> None:
    """One that was replaced, and one whose transaction took too long."""
    transactional_id, group = name_for(coordinator, topic), name_for(OURS, topic)
    with producer(cluster.bootstrap, transactional_id) as first:
        begin(first, cluster, topic, b"replaced", group, 1)
        with producer(cluster.bootstrap, transactional_id, transaction_timeout_ms=SHORT_MS) as second:
            first.produce(topic, b"zombie", partition=KAFKA - 1)
            with refused(KafkaError._FENCED, is_fatal=True):
                first.commit_transaction(DEADLINE_S)
            begin(second, cluster, topic, b"too late", group, 2)
            for partition in PARTITIONS:
                wait_for_end(cluster.bootstrap, topic, 4, partition)
            second.produce(topic, b"zombie", partition=OURS - 1)
            with refused(KafkaError._FENCED, is_fatal=True):
                second.commit_transaction(DEADLINE_S)

    assert committed(cluster, group, topic) == -1001
    for partition in PARTITIONS:
        assert read(cluster.bootstrap, topic, partition=partition) == []
        assert read(cluster.bootstrap, topic, "read_uncommitted", partition) == [b"replaced", b"too late"]


@pytest.mark.long
@pytest.mark.parametrize("killed", [KAFKA, OURS], ids=["kafka", "ours"])
def test_the_other_kind_takes_over_from_one_that_is_killed(killed: int, cluster: MixedCluster, topic: str) -> None:
    """It goes on with the transactions, offsets and producers that it finds in the logs of the killed one."""
    transactional_id, group = name_for(killed, topic), name_for(killed, topic)
    with producer(cluster.bootstrap, transactional_id, transaction_timeout_ms=120_000) as client:
        begin(client, cluster, topic, b"before", group, 1)
        client.commit_transaction(DEADLINE_S)
        begin(client, cluster, topic, b"amid", group, 2)
        cluster.brokers[killed].kill()
        client.commit_transaction(DEADLINE_S)
        assert committed(cluster, group, topic) == 2
        # librdkafka would ask the killed one for ever about a group that it has asked about before (its issue 5511).
        group = name_for(killed, f"{topic}-other")
        begin(client, cluster, topic, b"aborted", group, 3)
        client.abort_transaction(DEADLINE_S)
        begin(client, cluster, topic, b"after", group, 4)
        cluster.start_brokers(killed)
        for each in (topic, TRANSACTION_STATE, CONSUMER_OFFSETS):
            cluster.wait_for_full_isr(each, REPLICAS)
            cluster.elect_preferred(each, REPLICAS)
        client.commit_transaction(DEADLINE_S)

    assert committed(cluster, group, topic) == 4
    for partition in PARTITIONS:
        assert read(cluster.bootstrap, topic, partition=partition) == [b"before", b"amid", b"after"]
    for each in (topic, TRANSACTION_STATE, CONSUMER_OFFSETS):
        until(partial(has_same_logs, cluster, each), f"all have the same of {each}")
