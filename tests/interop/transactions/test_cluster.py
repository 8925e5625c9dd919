"""Transactions with confluent-kafka on three brokers, whose coordinators are killed meanwhile."""

from __future__ import annotations

import pytest
from confluent_kafka import OFFSET_INVALID, Producer, TopicPartition
from tests.faults.cluster import Cluster
from tests.interop.clients import confluent
from tests.interop.transactions.librdkafka import producer, read
from tests.kit.broker_process import topic_name
from tests.kit.waiting import DEADLINE_S

from ottla.broker.coordination.placement import CONSUMER_OFFSETS, TRANSACTION_STATE

# Each of them leads one partition.
REPLICAS = ((1, 2, 3), (2, 3, 1), (3, 1, 2))

pytestmark = pytest.mark.long


def test_transactions_go_on_when_their_coordinators_are_killed(
    cluster: Cluster, transactional_id: str, group: str
) -> None:
    """Whichever of them it is, and whenever: each transaction is whole or not there, and its offsets are with it.

    Each transaction has a group of its own. librdkafka remembers the coordinator of a group, and waits for it forever
    if that broker was missing from a Metadata response in between (confluentinc/librdkafka#5511).
    """
    topic = topic_name()
    cluster.create_topic(topic, REPLICAS)
    kept: list[bytes] = []
    with producer(cluster.bootstrap, transactional_id, transaction_timeout_ms=120_000) as client:
        for number, (killed, is_kept) in enumerate(
            (
                (TRANSACTION_STATE, True),
                (CONSUMER_OFFSETS, True),
                (TRANSACTION_STATE, False),
                (topic, True),
                (CONSUMER_OFFSETS, False),
            )
        ):
            value = b"transaction %d" % number
            member_of = f"{group}-{number}"
            begin(client, cluster, topic, member_of, value, number)
            leader = cluster.state.partition(killed, 0).leader
            cluster.brokers[leader].kill()
            if is_kept:
                client.commit_transaction(DEADLINE_S)
                kept.append(value)
            else:
                client.abort_transaction(DEADLINE_S)
            assert committed(cluster, member_of, topic) == (number if is_kept else OFFSET_INVALID)
            cluster.restore()
            for each, replicas in ((topic, REPLICAS), (TRANSACTION_STATE, REPLICAS[:1])):
                cluster.wait_for_full_isr(each, replicas)

    for partition in range(len(REPLICAS)):
        assert read(cluster.bootstrap, topic, partition=partition) == kept


def begin(client: Producer, cluster: Cluster, topic: str, group: str, value: bytes, offset: int) -> None:
    """Begin a transaction with a value in every partition, and an offset of a group."""
    client.begin_transaction()
    for partition in range(len(REPLICAS)):
        client.produce(topic, value, partition=partition)
    assert client.flush(DEADLINE_S) == 0
    with confluent.consumer(cluster.bootstrap, group_id=group) as reader:
        metadata = reader.consumer_group_metadata()
        client.send_offsets_to_transaction([TopicPartition(topic, 0, offset)], metadata, DEADLINE_S)


def committed(cluster: Cluster, group: str, topic: str) -> int:
    """Return the offset that a group has committed, when it is certain."""
    with confluent.consumer(cluster.bootstrap, group_id=group, isolation_level="read_committed") as client:
        (found,) = client.committed([TopicPartition(topic, 0)], DEADLINE_S)
        offset: int = found.offset
    return offset
