"""DeleteRecords on a partition with followers: who is waited for, and how the wait ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.handlers.data_path import Broker, batch, running_broker, topic_id
from tests.broker.handlers.small_cluster import deleted, live_broker
from tests.broker.handlers.test_produce_and_fetch import produce

from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest

END = 5


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """Return broker 1, which leads `t` with the offsets 0 to 4; 2 follows in sync, and 3 is registered but behind."""
    with running_broker(tmp_path, {}) as broker:
        broker.racks = {1: None, 2: None, 3: None}
        lead(broker)
        produce(broker, batch(b"a", b"b", b"c", b"d", b"e"))
        follow(broker, 2, END)
        follow(broker, 3, 1)
        yield broker


def lead(broker: Broker, epoch: int = 0, leader: int = 1) -> None:
    """Have the controller say who leads."""
    broker.lead("t", epoch=epoch, leader=leader, isr=(1, 2), replicas=(1, 2, 3))


def follow(broker: Broker, replica: int, offset: int, log_start: int = 0) -> None:
    """Fetch as a follower whose log begins and ends somewhere."""
    wanted = FetchPartition(
        partition=0,
        fetch_offset=offset,
        log_start_offset=log_start,
        partition_max_bytes=1000,
        current_leader_epoch=0,
    )
    body = FetchRequest(
        replica_state=ReplicaState(replica_id=replica, replica_epoch=1),
        max_wait_ms=0,
        min_bytes=1,
        topics=[FetchTopic(topic="", topic_id=topic_id("t"), partitions=[wanted])],
    )
    assert broker.ask(Api.FETCH, 17, body).responses[0].partitions[0].error_code == 0


def delete(broker: Broker, *offsets: int, version: int = 2) -> Any:
    """Delete the records of `t` below an offset; return the response, or a list that will have it."""
    partitions = [DeleteRecordsPartition(partition_index=0, offset=offset) for offset in offsets]
    topics = [DeleteRecordsTopic(name="t", partitions=partitions)]
    return broker.ask(Api.DELETE_RECORDS, version, DeleteRecordsRequest(topics=topics, timeout_ms=60_000))


def results(answer: Any) -> list[tuple[ErrorCode, int]]:
    """Each partition's code and low watermark."""
    (response,) = answer if isinstance(answer, list) else [answer]
    return [(ErrorCode.of(each.error_code), each.low_watermark) for each in response.topics[0].partitions]


@pytest.mark.parametrize("version", range(3))
def test_a_deletion_is_answered_when_every_live_replica_has_made_it(broker: Broker, version: int) -> None:
    """Whoever leads next begins its log there: no failover brings the records back."""
    answers = delete(broker, 3, version=version)
    assert answers == []
    follow(broker, 2, END, 3)
    assert answers == []
    follow(broker, 3, 4, 2)
    assert answers == []
    follow(broker, 3, 4, 4)
    assert results(answers) == [(ErrorCode.NONE, 3)]


def test_a_deletion_that_all_replicas_have_made_before_is_answered_at_once(broker: Broker) -> None:
    """So is one of nothing."""
    assert results(delete(broker, 0)) == [(ErrorCode.NONE, 0)]
    assert delete(broker, -1) == []
    for replica in (2, 3):
        follow(broker, replica, END, END)
    assert results(delete(broker, -1)) == [(ErrorCode.NONE, END)]


def test_a_deletion_does_not_wait_for_the_dead(broker: Broker) -> None:
    """They are in no ISR, and take the start of their leader's log when they come back."""
    follow(broker, 2, END, 0)
    answers = delete(broker, 3)
    follow(broker, 2, END, 3)
    assert answers == []
    broker.racks = {1: None, 2: None}
    lead(broker)
    assert results(answers) == [(ErrorCode.NONE, 3)]


def test_the_time_of_a_deletion_is_the_clients(broker: Broker) -> None:
    """The leader has made it by then, and tells so to all; partitions that are done are answered as such."""
    answers = delete(broker, 0, 3, 99)
    assert answers == []
    broker.services.partitions.waits.deletions.expire(float("inf"))
    assert results(answers) == [
        (ErrorCode.NONE, 0),
        (ErrorCode.REQUEST_TIMED_OUT, -1),
        (ErrorCode.OFFSET_OUT_OF_RANGE, -1),
    ]


def test_a_deletion_ends_with_the_leadership(broker: Broker) -> None:
    """The next leader may not have made it."""
    answers = delete(broker, 3)
    lead(broker, epoch=1, leader=2)
    assert results(answers) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]


def test_a_deletion_ends_with_the_topic(broker: Broker) -> None:
    """The client need not look for another leader."""
    answers = delete(broker, 3)
    gone = UpdateMetadataRequest(
        controller_id=1,
        controller_epoch=1,
        topic_states=[deleted("t")],
        live_brokers=[live_broker(each, "PLAINTEXT") for each in broker.racks],
    )
    assert broker.ask(Api.UPDATE_METADATA, 8, gone).error_code == 0
    broker.services.partitions.drop(TopicPartition("t", 0), delete=True)
    assert results(answers) == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]
