"""The copy of a partition in another log directory of this broker, on its way to become the partition's log.

It follows the current log as a follower does its leader, without a network between: it copies whole batches from where
it ends, begins where the current log begins, and cuts where that was cut, by leader epoch. Which broker leads does not
matter. When it has everything it takes the place of the current log while the partition's lock keeps appends, cuts
and reads out; they go on a moment later, in the other directory.

Not thread-safe: whoever uses it has the partition's files for itself (`Logs.change`). Lock order: change -> partition
-> log.
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

# Batches of this broker are of no later epoch than it knows.
_ANY_EPOCH: Final = 2**31 - 1


class FutureReplica:
    """One partition with its future log."""

    def __init__(self, partition: Partition, future: Held, logs: Logs) -> None:
        self.partition = partition
        self.future = future
        self._logs = logs
        # How often the current log had been cut when the two were compared last; None before that.
        self._compared_cuts: int | None = None

    def __repr__(self) -> str:
        return f"<FutureReplica {self.future.log} in {self.future.log_dir.path}>"

    @property
    def is_in_last_segment(self) -> bool:
        """Whether what is left lies in the segment that is being written."""
        return self.partition.log.active.base_offset <= self.future.log.log_end_offset

    def copy(self, max_bytes: int) -> int:
        """Copy the next batches of one segment; return their size, 0 where there are no more.

        Raises KafkaError where a log cannot be read or written, and CorruptBatchError where a batch is damaged.
        """
        current = self.partition.log
        # Before the comparison: what is cut during it is compared next time.
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
            # The current log was cut, or lost its oldest segments, a moment ago.
            self._compared_cuts = None
            return max_bytes

    def try_to_replace(self, max_bytes: int, is_hosted: Callable[[], bool]) -> bool:
        """Take the place of the current log; False where more than `max_bytes` came in since, or it was cut.

        Nothing is done either where `is_hosted`, called with the partition's lock held, says that this broker has
        another object for the partition by now.
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
            # Without it, the log is compacted from its beginning after a crash.
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
            # The log begins within a batch, and a batch is copied whole.
            log_moves.restart_future(self._logs, self.future, first_offset)
        future.append_as_follower(data, _ANY_EPOCH)
        self._follow_offsets(current)
        return len(data)

    def _follow_offsets(self, current: Log) -> None:
        """Take high watermark and log start over, as far as the future log reaches."""
        future = self.future.log
        start = current.log_start_offset
        if start > future.log_end_offset:
            log_moves.restart_future(self._logs, self.future, start)
        future.advance_high_watermark(current.high_watermark)
        if future.log_start_offset < start <= future.high_watermark:
            future.advance_log_start(start)

    def _cut_what_differs(self, current: Log) -> None:
        """Cut the future log to where both are alike: where the current one was cut, or lost its end in a crash.

        As between follower and leader, the newest epoch that both know tells how far that can be. Where the future log
        knows no such epoch, the one below is looked at.
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
