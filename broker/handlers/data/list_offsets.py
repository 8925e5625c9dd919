"""ListOffsets (2), versions 0-9.

Behavior: returns, for each partition, the latest offset (-1: the high watermark, or the last stable offset with
read_committed), the earliest offset (-2, and also -4, because all our data is local), the record with the largest
timestamp (-3), or the first record at or after a timestamp. If nothing is found, the offset is -1 without an error. -5
(tiered storage) finds nothing. Only the leader answers, except that any replica answers debugging tools (replica id
-2). For followers and these tools the latest offset is the log end offset.

A new leader does not know at once how far the log is committed. Until its followers have fetched, a request for the
latest offset, or one that finds nothing below it, is OFFSET_NOT_AVAILABLE. Otherwise offsets would seem to go back.

Version notes: -3 from version 7 on, -4 from 8, -5 from 9. Version 0 returns a list with the one offset. Below version
5, LEADER_NOT_AVAILABLE replaces OFFSET_NOT_AVAILABLE.

Our own brokers also ask, in a tagged field, for the times of records at offsets: for the lag of groups in seconds.
"""

from __future__ import annotations

from collections import Counter

from ottla.broker.replication.partition import Partition
from ottla.broker.requests.access import TOPIC, denied
from ottla.broker.requests.request import DataRequest
from ottla.broker.storage.offset_lookup import (
    OffsetAtTime,
    offset_for_timestamp,
    offset_of_max_timestamp,
    time_of_record,
)
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.fetch import READ_COMMITTED
from ottla.protocol.messages.list_offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.records import NO_TIMESTAMP

_FIRST_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
_CLIENT, _DEBUGGING = -1, -2
_NOT_AVAILABLE_VERSION = 5
_NOTHING = OffsetAtTime(-1, NO_TIMESTAMP, -1)


def list_offsets(request: DataRequest) -> ListOffsetsResponse:
    """Look the offsets up."""
    body: ListOffsetsRequest = request.body
    hidden = denied(request, TOPIC, {topic.name for topic in body.topics})
    counts = Counter(
        (topic.name, wanted.partition_index)
        for topic in body.topics
        if topic.name not in hidden
        for wanted in topic.partitions
    )
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[_refused(wanted) for wanted in topic.partitions]
                if topic.name in hidden
                else [
                    _answer(request, topic.name, wanted, is_repeated=counts[topic.name, wanted.partition_index] > 1)
                    for wanted in topic.partitions
                ],
            )
            for topic in body.topics
        ]
    )


def _refused(wanted: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
    )


def _answer(
    request: DataRequest, topic: str, wanted: ListOffsetsPartition, *, is_repeated: bool
) -> ListOffsetsPartitionResponse:
    timestamps: list[int] = []
    try:
        if is_repeated:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the partition is named twice")
        partition = request.services.partitions.get(TopicPartition(topic, wanted.partition_index))
        if request.body.replica_id == _DEBUGGING:
            partition.check_epoch(partition.role, wanted.current_leader_epoch)
            found = _find(request, partition, wanted.timestamp)
        else:
            role = partition.check_leader(wanted.current_leader_epoch)
            found = _find(request, partition, wanted.timestamp)
            timestamps = [_time_of(partition, offset) for offset in wanted.record_offsets]
            # A lookup reads too much to hold a lock. If the leader has changed meanwhile, it may have seen new records.
            partition.check_leader(role.leader_epoch)
    except KafkaError as error:
        return ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=error.code)
    if request.version == 0:
        offsets = [found.offset] if found.offset >= 0 else []
        return ListOffsetsPartitionResponse(
            partition_index=wanted.partition_index, error_code=0, old_style_offsets=offsets
        )
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index,
        error_code=0,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=found.leader_epoch if request.version >= 4 else -1,
        record_timestamps=timestamps,
    )


def _time_of(partition: Partition, offset: int) -> int:
    found = time_of_record(partition.log, offset)
    return NO_TIMESTAMP if found is None else found


def _find(request: DataRequest, partition: Partition, timestamp: int) -> OffsetAtTime:
    if request.version < _FIRST_VERSION.get(timestamp, 0) or timestamp < LATEST_TIERED:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"no timestamp {timestamp} in version {request.version}")
    log = partition.log
    upper = _end(request, partition)
    if timestamp == LATEST:
        _check_end_is_known(request, partition)
        return OffsetAtTime(upper, NO_TIMESTAMP, partition.role.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return OffsetAtTime(log.log_start_offset, NO_TIMESTAMP, log.leader_epochs.epoch_for(log.log_start_offset))
    if timestamp == LATEST_TIERED:
        return _NOTHING
    found = offset_of_max_timestamp(log) if timestamp == MAX_TIMESTAMP else offset_for_timestamp(log, timestamp)
    if found is not None and found.offset < upper:
        return found
    _check_end_is_known(request, partition)
    return _NOTHING


def _end(request: DataRequest, partition: Partition) -> int:
    if request.body.replica_id != _CLIENT:
        return partition.log.log_end_offset
    return partition.upper_offset(committed_only=request.body.isolation_level == READ_COMMITTED)


def _check_end_is_known(request: DataRequest, partition: Partition) -> None:
    if request.body.replica_id != _CLIENT or partition.is_high_watermark_known:
        return
    if request.version < _NOT_AVAILABLE_VERSION:
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "the high watermark is not known yet")
    raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, "the high watermark is not known yet")
