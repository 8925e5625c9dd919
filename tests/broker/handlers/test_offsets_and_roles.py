"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords, DescribeLogDirs, and what the controller may ask."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.handlers.data_path import NOW_MS, Broker, batch, running_broker
from tests.broker.handlers.test_produce_and_fetch import fetch, produce

from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.protocol.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest
from ottla.protocol.record_batch_builder import RecordBatchBuilder

EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """Return a broker that leads two topics, of which `t` has records at offsets 0 to 4."""
    with running_broker(tmp_path, {"compacted": {"cleanup.policy": "compact"}}) as broker:
        broker.lead("t")
        broker.lead("compacted")
        produce(broker, batch(b"a", b"b"))
        produce(broker, batch(b"c"))
        broker.lead("t", epoch=3)
        produce(broker, batch(b"d", b"e"))
        yield broker


def list_offset(broker: Broker, timestamp: int, version: int = 7, **fields: Any) -> Any:
    """Ask for one offset."""
    wanted = ListOffsetsPartition(
        partition_index=fields.get("index", 0),
        timestamp=timestamp,
        current_leader_epoch=fields.get("epoch", -1),
        record_offsets=fields.get("records", []),
    )
    body = ListOffsetsRequest(
        replica_id=fields.get("replica", -1),
        topics=[ListOffsetsTopic(name=fields.get("topic", "t"), partitions=[wanted])],
    )
    return broker.ask(Api.LIST_OFFSETS, version, body).topics[0].partitions[0]


@pytest.mark.parametrize("version", range(1, 10))
def test_the_ends_of_a_log_are_found_in_every_version(broker: Broker, version: int) -> None:
    """The latest offset is the next one that a consumer would read."""
    assert list_offset(broker, EARLIEST, version).offset == 0
    assert list_offset(broker, LATEST, version).offset == 5


def test_version_0_answers_a_list(broker: Broker) -> None:
    """With the one offset."""
    assert list_offset(broker, LATEST, 0).old_style_offsets == [5]


def test_offsets_are_found_by_time(broker: Broker) -> None:
    """The first record at or after it; nothing where there is none."""
    assert (list_offset(broker, NOW_MS - 1).offset, list_offset(broker, NOW_MS).timestamp) == (0, NOW_MS)
    later = list_offset(broker, NOW_MS + 1)
    assert (later.error_code, later.offset, later.timestamp) == (0, -1, -1)
    assert list_offset(broker, MAX_TIMESTAMP).offset in range(5)


def test_brokers_ask_for_the_times_of_records(broker: Broker) -> None:
    """In their order, -1 where there is no record. In place of a deleted record, the first one that is left counts."""
    later = RecordBatchBuilder()
    later.append(NOW_MS + 5, None, b"f")
    produce(broker, bytes(later.build()))
    assert list_offset(broker, LATEST, records=[5, 0, 6]).record_timestamps == [NOW_MS + 5, NOW_MS, -1]
    partition = broker.services.partitions.get(TopicPartition("t", 0))
    partition.delete_records(5)
    assert list_offset(broker, LATEST, records=[0]).record_timestamps == [NOW_MS + 5]
    assert list_offset(broker, LATEST, records=[0], version=5).record_timestamps == []


@pytest.mark.parametrize(
    ("timestamp", "fields", "code"),
    [
        (MAX_TIMESTAMP, {"version": 6}, ErrorCode.UNSUPPORTED_VERSION),
        (-9, {}, ErrorCode.UNSUPPORTED_VERSION),
        (LATEST, {"topic": "nowhere"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (LATEST, {"epoch": 2}, ErrorCode.FENCED_LEADER_EPOCH),
        (LATEST, {"epoch": 4}, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_an_offset_that_cannot_be_told_has_its_code(
    broker: Broker, timestamp: int, fields: dict[str, Any], code: ErrorCode
) -> None:
    """And no offset."""
    answer = list_offset(broker, timestamp, **fields)

    assert (ErrorCode.of(answer.error_code), answer.offset) == (code, -1)


@pytest.mark.parametrize("replica", [2, -2])
def test_followers_and_tools_are_told_the_end_of_the_log(broker: Broker, replica: int) -> None:
    """Consumers only what is committed."""
    broker.lead("t", epoch=4, isr=(1, 2))
    produce(broker, batch(b"f"))

    assert (list_offset(broker, LATEST, replica=replica).offset, list_offset(broker, LATEST).offset) == (6, 5)


def test_tools_are_answered_by_any_replica_and_others_by_the_leader(broker: Broker) -> None:
    """A replica id of -2 is for looking at what is there."""
    broker.lead("t", epoch=4, leader=2, isr=(1, 2))

    assert list_offset(broker, LATEST, replica=-2).offset == 5
    assert list_offset(broker, LATEST, replica=-2, epoch=3).error_code == ErrorCode.FENCED_LEADER_EPOCH
    for replica in (-1, 2):
        assert list_offset(broker, LATEST, replica=replica).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("version", "code"), [(4, ErrorCode.LEADER_NOT_AVAILABLE), (5, ErrorCode.OFFSET_NOT_AVAILABLE)]
)
def test_a_new_leader_that_does_not_know_what_is_committed_says_so(
    broker: Broker, version: int, code: ErrorCode
) -> None:
    """The end would seem to go back. What it finds below, it may tell; a follower's fetch ends it."""
    broker.lead("t", epoch=4, isr=(1, 2))
    produce(broker, batch(b"f"))
    broker.lead("t", epoch=5, isr=(1, 2))

    for timestamp in (LATEST, NOW_MS + 1):
        assert list_offset(broker, timestamp, version).error_code == code
    assert list_offset(broker, NOW_MS, version).offset == list_offset(broker, EARLIEST, version).offset == 0
    assert list_offset(broker, LATEST, version, replica=2).offset == 6
    follower = FetchPartition(partition=0, fetch_offset=6, partition_max_bytes=1)
    topics = [FetchTopic(topic="t", partitions=[follower])]
    broker.ask(Api.FETCH, 12, FetchRequest(replica_id=2, max_wait_ms=0, min_bytes=1, topics=topics))

    assert list_offset(broker, LATEST, version).offset == 6


@pytest.mark.parametrize("replica", [-1, 2])
@pytest.mark.parametrize("version", range(5))
def test_the_end_of_a_leader_epoch_is_told(broker: Broker, version: int, replica: int) -> None:
    """Epoch 0 ended where epoch 3 began; what is newer than we know is undefined."""
    answers = [epoch_end(broker, epoch, version, replica) for epoch in (0, 2, 3, 4)]

    assert [answer.end_offset for answer in answers] == [3, 3, 5, -1]
    assert version < 1 or [answer.leader_epoch for answer in answers] == [0, 0, 3, -1]


@pytest.mark.parametrize(
    ("current", "leader", "code"),
    [
        (3, 1, ErrorCode.FENCED_LEADER_EPOCH),
        (5, 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (4, 2, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_the_end_of_an_epoch_is_told_by_the_leader_that_the_asker_knows(
    broker: Broker, current: int, leader: int, code: ErrorCode
) -> None:
    """A follower that cut its log by the word of another leader could lose what is committed."""
    broker.lead("t", epoch=4, leader=leader, isr=(1, 2))

    answer = epoch_end(broker, 0, 4, 2, current)

    assert (ErrorCode.of(answer.error_code), answer.end_offset) == (code, -1)


def epoch_end(broker: Broker, epoch: int, version: int, replica: int = -1, current: int = -1) -> Any:
    """Ask where an epoch ends."""
    wanted = OffsetForLeaderPartition(partition=0, leader_epoch=epoch, current_leader_epoch=current)
    topics = [OffsetForLeaderTopic(topic="t", partitions=[wanted])]
    body = OffsetForLeaderEpochRequest(replica_id=replica, topics=topics)
    return broker.ask(Api.OFFSET_FOR_LEADER_EPOCH, version, body).topics[0].partitions[0]


@pytest.mark.parametrize(("offset", "start"), [(2, 2), (-1, 5), (0, 0)])
def test_deleted_records_are_not_served_any_more(broker: Broker, offset: int, start: int) -> None:
    """The log begins at the offset given; -1 is the high watermark."""
    answer = delete(broker, "t", offset)

    assert (answer.error_code, answer.low_watermark) == (0, start)
    assert list_offset(broker, EARLIEST).offset == start
    assert start == 0 or fetch(broker, 0, epoch=-1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(
    ("topic", "offset", "code"),
    [
        ("t", 6, ErrorCode.OFFSET_OUT_OF_RANGE),
        ("t", -2, ErrorCode.OFFSET_OUT_OF_RANGE),
        ("compacted", 0, ErrorCode.POLICY_VIOLATION),
        ("__consumer_offsets", 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("nowhere", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_records_that_may_not_be_deleted_stay(broker: Broker, topic: str, offset: int, code: ErrorCode) -> None:
    """Each with its code."""
    assert ErrorCode.of(delete(broker, topic, offset).error_code) == code


def delete(broker: Broker, topic: str, offset: int) -> Any:
    """Delete the records of partition 0 below an offset."""
    wanted = DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)])
    body = DeleteRecordsRequest(topics=[wanted], timeout_ms=1000)
    return broker.ask(Api.DELETE_RECORDS, 2, body).topics[0].partitions[0]


@pytest.mark.parametrize("version", range(5))
def test_log_directories_are_described(broker: Broker, version: int) -> None:
    """All partitions, or those asked for, with their sizes."""
    (everything,) = broker.ask(Api.DESCRIBE_LOG_DIRS, version, DescribeLogDirsRequest(topics=None)).results
    asked = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic="t", partitions=[0])])
    (one,) = broker.ask(Api.DESCRIBE_LOG_DIRS, version, asked).results

    assert {topic.name for topic in everything.topics} == {"t", "compacted"}
    assert one.topics[0].partitions[0].partition_size > 150
    assert version < 4 or 0 < one.usable_bytes <= one.total_bytes


def test_a_stopped_partition_is_not_served_and_a_deleted_one_is_gone(broker: Broker) -> None:
    """A partition that is not here is fine."""

    def stop(topic: str, *, delete_it: bool, epoch: int = 3) -> int:
        state = StopReplicaPartitionState(partition_index=0, leader_epoch=epoch, delete_partition=delete_it)
        body = StopReplicaRequest(
            controller_id=1,
            controller_epoch=1,
            topic_states=[StopReplicaTopicState(topic_name=topic, partition_states=[state])],
        )
        code: int = broker.ask(Api.STOP_REPLICA, 4, body).partition_errors[0].error_code
        return code

    assert stop("t", delete_it=False, epoch=2) == ErrorCode.FENCED_LEADER_EPOCH
    assert stop("t", delete_it=False) == 0
    assert fetch(broker).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert stop("t", delete_it=True) == stop("nowhere", delete_it=True) == 0
    assert {log.partition.topic for log in broker.services.partitions.logs} == {"compacted"}


def test_requests_from_the_past_are_refused(broker: Broker) -> None:
    """Of a controller that was replaced, and for an earlier life of this broker."""
    stale_controller = UpdateMetadataRequest(controller_id=9, controller_epoch=0, live_brokers=[])
    stale_broker = LeaderAndIsrRequest(controller_id=1, controller_epoch=1, broker_epoch=4, live_leaders=[])

    assert broker.ask(Api.UPDATE_METADATA, 8, stale_controller).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    assert broker.ask(Api.LEADER_AND_ISR, 7, stale_broker).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert "t" in broker.services.metadata.snapshot.topics
