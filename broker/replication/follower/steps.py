"""The follower's side of replication for one partition: the offset to fetch from, and what to do with the response.

A follower copies its leader's log byte for byte. The two logs may differ: the follower may have records of an earlier
leader that were never committed. The leader then returns where the logs diverge, by leader epoch, and the follower
truncates there. It never truncates to its high watermark, which may be behind. A response belongs to the epoch of its
request; if the role has changed since, it is dropped.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

import structlog

from ottla.broker.replication.partition import EpochEndOffset, Partition
from ottla.broker.storage.errors import NoSpaceError
from ottla.broker.storage.log import Appended
from ottla.broker.storage.logs import Errors, Logs
from ottla.protocol.errors import CorruptBatchError, ErrorCode, KafkaError
from ottla.protocol.identifiers import NO_LEADER
from ottla.protocol.records import NO_LEADER_EPOCH, batches

log = structlog.get_logger(__name__)


class FetchPosition(NamedTuple):
    """What a follower asks for: the next offset, the leader epoch that it knows, and the last epoch in its log."""

    offset: int
    last_fetched_epoch: int
    current_leader_epoch: int
    log_start_offset: int


class Fetched(NamedTuple):
    """The leader's response for one partition."""

    error_code: ErrorCode
    high_watermark: int
    log_start_offset: int
    diverging: EpochEndOffset | None
    records: memoryview | bytes


class Step(Enum):
    """The result of a response, which decides what to do next."""

    # Records were appended: fetch the next ones.
    ADVANCED = "advanced"
    # There was nothing new.
    IDLE = "idle"
    # The log was truncated: fetch again at once.
    TRUNCATED = "truncated"
    # The leader does not have our offset: ask for its offsets and call `restart_in_range`.
    OUT_OF_RANGE = "out of range"
    # The role has changed or is about to: wait for the controller.
    FENCED = "fenced"
    # Fetch again after a pause.
    RETRY = "retry"
    # The disk has too little space for more records of this topic.
    NO_SPACE = "no space"
    # The log cannot be written.
    FAILED = "failed"


def follow_position(partition: Partition) -> FetchPosition:
    """Return the position to fetch from now."""
    with partition.lock:
        role, followed = partition.role, partition.log
        with followed.lock:
            return FetchPosition(
                followed.log_end_offset,
                followed.leader_epochs.latest_epoch,
                role.leader_epoch,
                followed.log_start_offset,
            )


def take_fetched(partition: Partition, logs: Logs, position: FetchPosition, fetched: Fetched) -> Step:
    """Append the leader's records, or truncate what the leader does not have."""
    if fetched.error_code is not ErrorCode.NONE:
        return _after_error(fetched.error_code)
    with partition.lock:
        if not _is_current(partition, position):
            return Step.FENCED
        try:
            if fetched.diverging is not None:
                _truncate(partition, logs, fetched.diverging)
                return Step.TRUNCATED
            if partition.log.log_end_offset != position.offset:
                return Step.TRUNCATED
            appended = _append(partition, logs, fetched.records, position.current_leader_epoch)
            _follow_offsets(partition, fetched)
        except CorruptBatchError as error:
            log.error("leader_sent_damaged_batch", partition=str(partition.partition), error=str(error))
            return Step.RETRY
        except NoSpaceError:
            return Step.NO_SPACE
        except KafkaError as error:
            log.error("follower_cannot_write", partition=str(partition.partition), error=str(error))
            return Step.FAILED
        if appended is None:
            return Step.IDLE
        partition.replicated_bytes_in += len(fetched.records)
        return Step.ADVANCED


def restart_in_range(
    partition: Partition, logs: Logs, position: FetchPosition, leader_start: int, leader_end: int
) -> None:
    """Continue after the leader answered that our offset is out of range.

    A leader whose log ends before ours was elected uncleanly, and the records that it lacks are lost: truncate. A
    leader whose log starts after our end has deleted the records that we need: start where it starts. Raises
    KafkaError if the log cannot be changed.
    """
    with partition.lock:
        if not _is_current(partition, position):
            return
        own_end = partition.log.log_end_offset
        if leader_end < own_end:
            _cut(partition, logs, leader_end)
        elif leader_start > own_end:
            log.warning("follower_starts_anew", partition=str(partition.partition), own_end=own_end, start=leader_start)
            _raise_first(logs.truncate_fully_and_start_at({partition.partition: leader_start}))
        else:
            _cut(partition, logs, own_end)


def _append(partition: Partition, logs: Logs, records: memoryview | bytes, leader_epoch: int) -> Appended | None:
    """Append batches. An empty log starts over where the first batch does, if the log starts inside that batch.

    DeleteRecords lets a log start at any offset, and a leader serves whole batches.
    """
    if not records:
        return None
    end = partition.log.log_end_offset
    if partition.log.log_start_offset == end:
        first = next(batches(records), None)
        if first is not None and first.base_offset < end <= first.last_offset:
            _raise_first(logs.truncate_fully_and_start_at({partition.partition: first.base_offset}))
    return partition.log.append_as_follower(records, leader_epoch)


def _after_error(code: ErrorCode) -> Step:
    match code:
        case ErrorCode.OFFSET_OUT_OF_RANGE:
            return Step.OUT_OF_RANGE
        case ErrorCode.FENCED_LEADER_EPOCH:
            return Step.FENCED
        case _:
            return Step.RETRY


def _is_current(partition: Partition, position: FetchPosition) -> bool:
    """Whether a response is for the partition's current role. The caller holds the lock."""
    role = partition.role
    return role.leader_epoch == position.current_leader_epoch and role.leader_id not in (NO_LEADER, partition.node_id)


def _truncate(partition: Partition, logs: Logs, diverging: EpochEndOffset) -> None:
    """Truncate to where our log may equal the leader's. If the leader knows more epochs than we do, we ask again."""
    followed = partition.log
    if diverging.epoch == NO_LEADER_EPOCH:
        # Our leaders never send this. Only records below the high watermark are known to be common.
        _cut(partition, logs, followed.high_watermark)
        return
    own_epoch, own_end = followed.end_offset_for_epoch(diverging.epoch)
    if own_epoch == NO_LEADER_EPOCH:
        _cut(partition, logs, diverging.end_offset)
    elif own_epoch == diverging.epoch:
        _cut(partition, logs, min(diverging.end_offset, own_end))
    else:
        _cut(partition, logs, own_end)


def _cut(partition: Partition, logs: Logs, offset: int) -> None:
    followed = partition.log
    end, high_watermark = followed.log_end_offset, followed.high_watermark
    _raise_first(logs.truncate_to({partition.partition: min(offset, end)}))
    report = log.warning if offset < high_watermark else log.info
    report(
        "log_truncated",
        partition=str(partition.partition),
        epoch=partition.role.leader_epoch,
        offset=followed.log_end_offset,
        end_before=end,
        high_watermark=high_watermark,
    )


def _follow_offsets(partition: Partition, fetched: Fetched) -> None:
    """Take over the leader's high watermark and log start, as far as our log reaches."""
    followed = partition.log
    high_watermark = min(fetched.high_watermark, followed.log_end_offset)
    if high_watermark > followed.high_watermark:
        followed.advance_high_watermark(high_watermark)
    if followed.log_start_offset < fetched.log_start_offset <= followed.high_watermark:
        followed.advance_log_start(fetched.log_start_offset)


def _raise_first(errors: Errors) -> None:
    for error in errors.values():
        raise error
