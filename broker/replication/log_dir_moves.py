"""Moving replicas between the log directories of this broker, for AlterReplicaLogDirs.

Every replica with a future log is being moved, so moves continue after a restart. The threads take the moves in turn, a
few batches of each, within `replica.alter.log.dirs.io.max.bytes.per.second`. A move pauses while its partition has no
role here, while one of its two disks has failed, and while the target is nearly full. After an error it is tried again
later.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

import structlog

from ottla.broker.config import BrokerConfig
from ottla.broker.replication.future_replica import FutureReplica
from ottla.broker.replication.partitions import Partitions
from ottla.broker.replication.throttle import ReplicationThrottle, Side
from ottla.broker.storage import log_moves
from ottla.broker.storage.directory_files import DirectoryKind, directory_name
from ottla.broker.storage.errors import StorageError
from ottla.broker.storage.log import Log
from ottla.broker.storage.logs import Held, storage_error
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition

log = structlog.get_logger(__name__)

# The amount that is copied at once. Also the most that is copied while appends to the partition wait.
ROUND_BYTES: Final = 1024 * 1024
IDLE_SECONDS: Final = 1.0
RETRY_SECONDS: Final = 10.0


class _Move:
    """A future log that the threads work on."""

    __slots__ = ("due", "failures", "future", "is_taken", "replica")

    def __init__(self, future: Held) -> None:
        self.future = future
        # None while the partition has no role here.
        self.replica: FutureReplica | None = None
        self.due = 0.0
        self.is_taken = False
        # Number of failures in a row.
        self.failures = 0


class LogDirMoves:
    """The moves of a broker and the threads that carry them out. Tests call `advance` themselves."""

    def __init__(
        self,
        partitions: Partitions,
        config: BrokerConfig,
        clock: Callable[[], float] = time.monotonic,
        *,
        round_bytes: int = ROUND_BYTES,
    ) -> None:
        """`clock` returns seconds."""
        self._partitions = partitions
        self._logs = logs = partitions.logs
        self._clock = clock
        self._round_bytes = round_bytes
        self._throttle = ReplicationThrottle(
            Side.FOLLOWER,
            partitions.node_id,
            clock,
            samples_max=config.alter_log_dirs_replication_quota_window_num,
            sample_seconds=config.alter_log_dirs_replication_quota_window_size_seconds,
        )
        self.configure(config)
        # Protects the table of moves. A thread that has taken a move uses it alone.
        self._changed = threading.Condition()
        self._moves: dict[Log, _Move] = {}
        self._is_stopping = False
        count = config.num_replica_alter_log_dirs_threads or len(logs.dirs)
        self._threads = [
            threading.Thread(target=self._run, name=f"log-dir-move-{number}", daemon=True)
            for number in range(count if len(logs.dirs) > 1 else 0)
        ]

    def configure(self, config: BrokerConfig) -> None:
        """Apply the broker's current options."""
        self._throttle.configure(config.replica_alter_log_dirs_io_max_bytes_per_second)

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop the threads, each after its current round. The next start continues the moves."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    # Requests

    def move(self, partition: TopicPartition, directory: str) -> None:
        """Start to move a replica to a directory of `log.dirs`, in place of any earlier move; the threads copy later.

        Raises KafkaError: INVALID_TOPIC_EXCEPTION if the name is too long for the suffix of a future log;
        LOG_DIR_NOT_FOUND; KAFKA_STORAGE_ERROR if a directory is offline; NOT_LEADER_OR_FOLLOWER if this broker has no
        such replica. In the last case, its log will be created in the directory when the broker gets one.
        """
        try:
            directory_name(partition, DirectoryKind.FUTURE)
        except StorageError as error:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)) from error
        target = self._logs.dir_at(directory)
        if target is None:
            raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"{directory!r} is not in log.dirs")
        if target.offline_reason is not None:
            raise storage_error(target.offline_reason)
        if self._logs.dir_of(partition) is None:
            self._logs.prefer(partition, target)
        self._partitions.get(partition)
        if log_moves.move_to(self._logs, partition, target):
            with self._changed:
                self._changed.notify()

    # Moving

    def advance(self) -> float:
        """Do one round of the next move; return for how many seconds there is nothing else to do."""
        move = self._take()
        if move is None:
            return self._seconds_to_next()
        pause_seconds = RETRY_SECONDS
        try:
            pause_seconds = self._advance(move)
            move.failures = 0
        except Exception as error:
            move.failures += 1
            if move.failures == 1:
                partition = str(move.future.log.partition)
                log.error("move_between_log_dirs_fails", partition=partition, error=f"{type(error).__name__}: {error}")
        finally:
            with self._changed:
                move.is_taken = False
                move.due = self._clock() + pause_seconds
        return 0.0

    def _take(self) -> _Move | None:
        """Take the move that has waited longest, among those that are due and not taken."""
        futures = {held.log: held for held in self._logs.futures()}
        now = self._clock()
        with self._changed:
            for gone in self._moves.keys() - futures.keys():
                if not self._moves[gone].is_taken:
                    del self._moves[gone]
            for future, held in futures.items():
                self._moves.setdefault(future, _Move(held))
            for future, move in self._moves.items():
                if not move.is_taken and move.due <= now:
                    move.is_taken = True
                    # Move it to the end of the queue.
                    self._moves[future] = self._moves.pop(future)
                    return move
        return None

    def _seconds_to_next(self) -> float:
        now = self._clock()
        with self._changed:
            dues = [move.due - now for move in self._moves.values() if not move.is_taken]
        return max(0.0, min([IDLE_SECONDS, *dues]))

    def _advance(self, move: _Move) -> float:
        """Copy the next batches, and replace the log at the end; return how long the move must pause."""
        pause_seconds = self._throttle.pause_seconds()
        if pause_seconds > 0:
            return min(pause_seconds, IDLE_SECONDS)
        future, target = move.future
        with self._logs.change(future.partition):
            if self._logs.future(future.partition) is not move.future:
                return 0.0
            partition = self._partitions.find(future.partition)
            if partition is None or self._logs.find(future.partition) is not partition.log:
                return IDLE_SECONDS
            self._logs.place(future.partition)
            if target.client_refusal is not None:
                return IDLE_SECONDS
            replica = move.replica
            if replica is None or replica.partition is not partition:
                replica = move.replica = FutureReplica(partition, move.future, self._logs)
            size = replica.copy(self._round_bytes)
            self._throttle.record(size)
            if size and (size >= self._round_bytes // 2 or not replica.is_in_last_segment):
                return 0.0
            if replica.try_to_replace(self._round_bytes, lambda: self._partitions.find(future.partition) is partition):
                log.info("replica_moved", partition=str(future.partition), directory=str(target.path))
            return 0.0

    def _run(self) -> None:
        while not self._is_stopping:
            pause_seconds = self.advance()
            if pause_seconds > 0:
                with self._changed:
                    if not self._is_stopping:
                        self._changed.wait(pause_seconds)
