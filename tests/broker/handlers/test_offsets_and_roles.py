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
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.protocol.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest

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
        partition_index=fields.get("index", 0), timestamp=timestamp, current_leader_epoch=fields.get("epoch", -1)
    )
    body = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=fields.get("topic", "t"), partitions=[wanted])]
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


@pytest.mark.parametrize("version", range(5))
def test_the_end_of_a_leader_epoch_is_told(broker: Broker, version: int) -> None:
    """Epoch 0 ended where epoch 3 began; what is newer than we know is undefined."""

    def ask(epoch: int) -> Any:
        wanted = OffsetForLeaderPartition(partition=0, leader_epoch=epoch)
        body = OffsetForLeaderEpochRequest(replica_id=-1, topics=[OffsetForLeaderTopic(topic="t", partitions=[wanted])])
        return broker.ask(Api.OFFSET_FOR_LEADER_EPOCH, version, body).topics[0].partitions[0]

    assert [ask(epoch).end_offset for epoch in (0, 2, 3, 4)] == [3, 3, 5, -1]


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
