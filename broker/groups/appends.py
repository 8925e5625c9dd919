"""Writing to `__consumer_offsets`: the batch, and what members are told where it cannot be written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ottla.broker.groups.records import StoredRecord, batch_of
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.pending_append import PendingAppend, PendingAppends
from ottla.protocol.compression import Codec
from ottla.protocol.errors import ErrorCode, KafkaError

Done = Callable[[ErrorCode], None]

# What members are told when a group cannot be written.
_GROUP_ERRORS: Final[Mapping[ErrorCode, ErrorCode]] = {
    ErrorCode.NONE: ErrorCode.NONE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
}
# The same for offsets, where that differs.
_COMMIT_ERRORS: Final[Mapping[ErrorCode, ErrorCode]] = {
    **_GROUP_ERRORS,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}


def group_error(error: ErrorCode) -> ErrorCode:
    """Say in terms of the group protocol how writing a group ended."""
    return _GROUP_ERRORS.get(error, ErrorCode.UNKNOWN_SERVER_ERROR)


def commit_error(error: ErrorCode) -> ErrorCode:
    """Say in terms of the group protocol how writing offsets ended."""
    return _COMMIT_ERRORS.get(error, ErrorCode.UNKNOWN_SERVER_ERROR)


class Append:
    """Records of a group as one batch that was appended, or could not be."""

    __slots__ = ("_error", "_pending", "first_offset")

    def __init__(self, partition: Partition | None, records: Sequence[StoredRecord], now_ms: int, codec: Codec) -> None:
        """Append the records; a group's lock may be held. `partition` is None where this broker does not have it."""
        self._error: ErrorCode | None = None
        self._pending: PendingAppend | None = None
        self.first_offset = -1
        try:
            self._pending = _append(partition, records, now_ms, codec)
            self.first_offset = self._pending.appended.first_offset
        except KafkaError as error:
            self._error = error.code

    @property
    def error(self) -> ErrorCode | None:
        """Why nothing was appended; None where it was."""
        return self._error

    def then(self, timeout_ms: int, done: Done) -> None:
        """Call `done` when the batch is committed, or will not be; perhaps before this returns. No lock may be held."""
        pending = self._pending
        if pending is None:
            done(self._error or ErrorCode.NONE)
            return

        def ended() -> None:
            outcome = pending.outcome
            done(ErrorCode.REQUEST_TIMED_OUT if outcome is None else outcome)

        PendingAppends([pending]).when_done(timeout_ms, ended)


def _append(partition: Partition | None, records: Sequence[StoredRecord], now_ms: int, codec: Codec) -> PendingAppend:
    if partition is None:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    batch = batch_of(records, now_ms, codec)
    if batch.size > partition.log.config.max_message_bytes:
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"a batch of {batch.size} bytes for {partition.partition}")
    return partition.append_batch(batch)
