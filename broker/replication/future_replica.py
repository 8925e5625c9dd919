"""The copy of a partition in another log directory of this broker, which will become the partition's log.

It follows the current log as a follower follows its leader, but without a network. It copies whole batches from its
end, starts where the current log starts, and is truncated where the current log was truncated, by leader epoch. It does
not matter which broker leads. When it has everything, it replaces the current log. Meanwhile the partition's lock
blocks appends, truncations and reads; they continue a moment later in the other directory.

Not thread-safe: the caller needs exclusive use of the partition's files (`Logs.change`). Lock order: change ->
partition -> log.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

import structlog

from ottla.broker.replication.partition import Partition
from ottla.broker.storage import log_moves
from ottla.broker.storage.checkpoint import CLEANER_OFFSET_CHECKPOINT
from ottla.broker.storage.log import Log
from ottla.broker.storage.logs import Held, Logs, translated
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records import NO_LEADER_EPOCH, RecordBatch

log = structlog.get_logger(__name__)

# Batches of this broker never have a newer epoch than it knows.
_ANY_EPOCH: Final = 2**31 - 1


class FutureReplica:
    """One partition with its future log."""

    def __init__(self, partition: Partition, future: Held, logs: Logs) -> None:
        self.partition = partition
        self.future = future
        self._logs = logs
        # How often the current log had been truncated at the last comparison; None before the first.
        self._compared_cuts: int | None = None

    def __repr__(self) -> str:
        return f"<FutureReplica {self.future.log} in {self.future.log_dir.path}>"

    @property
    def is_in_last_segment(self) -> bool:
        """Whether the rest of the copy is in the active segment."""
        return self.partition.log.active.base_offset <= self.future.log.log_end_offset

    def copy(self, max_bytes: int) -> int:
        """Copy the next batches of one segment; return their size, or 0 if there are no more.

        Raises KafkaError if a log cannot be read or written, and CorruptBatchError if a batch is damaged.
        """
        current = self.partition.log
        # Before the comparison: a truncation during it is seen next time.
        cuts = current.cuts
        if cuts != self._compared_cuts:
            self._cut_what_differs(current)
            self._compared_cuts = cuts
        self._follow_offsets(current)
        try:
            return self._copy_batches(current, max_bytes)
        except KafkaError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            # The current log was truncated, or lost its oldest segments, a moment ago.
            self._compared_cuts = None
            return max_bytes

    def try_to_replace(self, max_bytes: int, is_hosted: Callable[[], bool]) -> bool:
        """Replace the current log; return False if more than `max_bytes` were appended since, or if it was truncated.

        It also returns False if `is_hosted`, which is called with the partition's lock held, says that this broker now
        has another object for the partition.
        """
        partition = self.partition
        log_moves.prepare(self._logs, self.future, partition.log)
        with partition.lock:
            current = partition.log
            if not is_hosted() or current.cuts != self._compared_cuts:
                return False
            self._follow_offsets(current)
            left = max_bytes
            while size := self._copy_batches(current, left):
                left -= size
                if left <= 0:
                    return False
            partition.log = log_moves.replace_current(self._logs, partition.partition)
        for log_dir in self._logs.online_dirs:
            # Without this checkpoint, the log would be compacted from its start after a crash.
            with suppress(OSError):
                self._logs.checkpoint(CLEANER_OFFSET_CHECKPOINT, log_dir)
        return True

    def _copy_batches(self, current: Log, max_bytes: int) -> int:
        future = self.future.log
        piece = current.read(future.log_end_offset, max_bytes)
        if piece is None:
            return 0
        with translated(self.partition.partition, self._logs.place(self.partition.partition).log_dir):
            data = piece.read()
        first_offset = RecordBatch(memoryview(data)).base_offset
        if first_offset < future.log_end_offset and future.log_start_offset == future.log_end_offset:
            # The log starts inside a batch, but batches are copied whole.
            log_moves.restart_future(self._logs, self.future, first_offset)
        future.append_as_follower(data, _ANY_EPOCH)
        self._follow_offsets(current)
        return len(data)

    def _follow_offsets(self, current: Log) -> None:
        """Take over the high watermark and the log start, as far as the future log reaches."""
        future = self.future.log
        start = current.log_start_offset
        if start > future.log_end_offset:
            log_moves.restart_future(self._logs, self.future, start)
        future.advance_high_watermark(current.high_watermark)
        if future.log_start_offset < start <= future.high_watermark:
            future.advance_log_start(start)

    def _cut_what_differs(self, current: Log) -> None:
        """Truncate the future log to where both are equal, if the current log was truncated or lost its end in a crash.

        As between follower and leader, the newest common epoch decides. If the future log does not have that epoch,
        the one below it is tried.
        """
        future = self.future.log
        end_before = future.log_end_offset
        while future.log_end_offset > future.log_start_offset:
            newest = future.leader_epochs.latest_epoch
            asked = min(newest, current.leader_epochs.latest_epoch)
            epoch, end = current.end_offset_for_epoch(asked)
            if epoch == NO_LEADER_EPOCH:
                log_moves.restart_future(self._logs, self.future, current.log_start_offset)
                break
            own_epoch, own_end = future.end_offset_for_epoch(epoch)
            log_moves.truncate_future(self._logs, self.future, min(end, own_end) if own_epoch == epoch else own_end)
            if own_epoch == newest:
                break
        if future.log_end_offset < end_before:
            log.info(
                "future_log_truncated",
                partition=str(self.partition.partition),
                offset=future.log_end_offset,
                end_before=end_before,
            )
