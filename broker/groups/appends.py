"""Writing to `__consumer_offsets`: an append is done when all replicas in sync have it, and nobody blocks until then.

Appending and waiting are two steps. The first happens under the group's lock, so that what a group writes lies in the
log in the order in which it happened; the second after the lock is released, since it may call back at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ottla.broker.common.purgatory import DelayedOperation
from ottla.broker.groups.records import StoredRecord, batch_of
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.partitions import Partitions
from ottla.broker.storage.maintenance.group_commit import GroupCommit
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


class Append(DelayedOperation):
    """A batch that was appended, or could not be, on its way to being committed."""

    __slots__ = ("_done", "_error", "_is_flushed", "_last_offset", "_partition", "first_offset")

    def __init__(self, partition: Partition | None, records: Sequence[StoredRecord], now_ms: int, codec: Codec) -> None:
        """Append some records as one batch. `None` in place of the partition: this broker does not have it."""
        super().__init__()
        self._partition = partition
        self._done: Done = lambda error: None
        self._error: ErrorCode | None = None
        self._is_flushed = True
        self.first_offset = self._last_offset = -1
        try:
            self._append(records, now_ms, codec)
        except KafkaError as error:
            self._error = error.code

    def _append(self, records: Sequence[StoredRecord], now_ms: int, codec: Codec) -> None:
        partition = self._partition
        if partition is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        batch = batch_of(records, now_ms, codec)
        if batch.size > partition.log.config.max_message_bytes:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"a batch of {batch.size} bytes for {partition.partition}")
        appended = partition.append_batch(batch)
        self.first_offset, self._last_offset = appended.first_offset, appended.last_offset

    @property
    def error(self) -> ErrorCode | None:
        """Why nothing was appended; None where it was."""
        return self._error

    def is_satisfied(self) -> bool:
        """Whether it is known how the append ended."""
        if self._error is not None:
            return True
        assert self._partition is not None
        error = self._partition.commit_error(self._last_offset)
        return error is not None and (self._is_flushed or error is not ErrorCode.NONE)

    def on_complete(self, *, expired: bool) -> None:
        """Say how it ended."""
        error = self._error
        if error is None:
            assert self._partition is not None
            error = self._partition.commit_error(self._last_offset)
            if error is ErrorCode.NONE and not self._is_flushed:
                error = None
        self._done(ErrorCode.REQUEST_TIMED_OUT if error is None else error)

    def then(self, partitions: Partitions, group_commit: GroupCommit | None, timeout_ms: int, done: Done) -> None:
        """Call `done` when it is committed, or will not be; perhaps before this returns. No lock may be held."""
        self._done = done
        partition = self._partition
        if self._error is not None or partition is None:
            self.complete()
            return
        key = partition.partition
        partitions.moved(key)
        log = partition.log
        if group_commit is not None and log.is_flush_wanted:
            self._is_flushed = False

            def flushed(error: KafkaError | None) -> None:
                if error is not None:
                    self._error = error.code
                self._is_flushed = True
                partitions.delayed_produces.check(key)

            group_commit.when_flushed(log, self._last_offset + 1, flushed)
        if self.is_satisfied():
            self.complete()
            return
        partitions.delayed_produces.watch(self, [key], timeout_ms / 1000)
