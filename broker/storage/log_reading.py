"""The part of a log that says what it holds and reads it. `log.py` tells more."""

from __future__ import annotations

import random
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple, Protocol

from ottla.broker.config import TopicConfig
from ottla.broker.storage.directory_files import may_have_holes
from ottla.broker.storage.errors import StorageError
from ottla.broker.storage.file_slice import FileSlice
from ottla.broker.storage.leader_epochs import LeaderEpochs
from ottla.broker.storage.open_files import OpenFiles
from ottla.broker.storage.producers.aborted_transactions import AbortedTransactions, aborted_within
from ottla.broker.storage.producers.producer_replay import check_transaction_index
from ottla.broker.storage.producers.producer_snapshot import snapshot_path
from ottla.broker.storage.producers.producers import Producers
from ottla.broker.storage.segment import Limits, Segment
from ottla.broker.storage.validation import AppendRules
from ottla.protocol.errors import CorruptBatchError, ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition

Clock = Callable[[], int]

# What goes wrong with files: the system refuses, or they are not what they must be.
FAILURES = (OSError, CorruptBatchError, StorageError)
UNKNOWN = -(2**63)
_BASE_OFFSET_OF = attrgetter("base_offset")


class AppendGuard(Protocol):
    """Who may refuse appends: the log directory, when it is offline or nearly full."""

    # In words, why nothing is taken, and why nothing of clients is taken; None where all is well.
    refusal: str | None
    client_refusal: str | None

    def failed(self, error: OSError) -> None:
        """Learn what the system refused. The log's lock is held: no lock of a log may be taken here."""
        ...


class LogParts(NamedTuple):
    """What recovery hands to a log."""

    segments: list[Segment]
    leader_epochs: LeaderEpochs
    producers: Producers
    log_start_offset: int
    recovery_point: int


class ReadableLog:
    """What a log holds, and how it is read."""

    def __init__(
        self,
        directory: Path,
        partition: TopicPartition,
        config: TopicConfig,
        files: OpenFiles,
        clock: Clock,
        lock: threading.Lock,
        parts: LogParts,
    ) -> None:
        self.directory = directory
        self.partition = partition
        self.leader_epochs = parts.leader_epochs
        self.producers = parts.producers
        self.lock = lock
        self.files = files
        self.clock = clock
        # None: appends are always taken.
        self.guard: AppendGuard | None = None
        self._config = config
        self.rules = AppendRules.of(config)
        self._flush_interval = _flush_interval(config)
        # Oldest first; never empty; the last one is active.
        self.segments = parts.segments
        self.log_start_offset = parts.log_start_offset
        self.recovery_point = parts.recovery_point
        self.high_watermark = parts.log_start_offset
        self.last_flush_ms = clock()
        # In words, what is wrong with the files; None as far as anybody has noticed.
        self.damage: str | None = None
        # Whether another log has taken its place, with everything on disk; see log_moves.py.
        self.is_replaced = False
        # How often the log was cut back: tells whoever reads closed segments without the lock that they may be others.
        self.cuts = 0
        # Deleted files and when they may be removed.
        self.doomed: list[tuple[int, list[Path]]] = []
        self._active_since_ms = clock()
        self._roll_jitter_ms = self._jitter()
        # A batch up to this timestamp does not make the active segment old; below all when that is not known.
        self._roll_timestamp = UNKNOWN

    def __repr__(self) -> str:
        return (
            f"Log({self.partition}, offsets={self.log_start_offset}..{self.log_end_offset}, "
            f"segments={len(self.segments)}, size={self.size})"
        )

    # State

    @property
    def config(self) -> TopicConfig:
        """The options of the topic; they may change while the log is open."""
        return self._config

    @config.setter
    def config(self, config: TopicConfig) -> None:
        with self.lock:
            self._config = config
            self.rules = AppendRules.of(config)
            self._flush_interval = _flush_interval(config)
            self._roll_timestamp = UNKNOWN
            for segment in self.segments:
                segment.limits = self.limits

    @property
    def active(self) -> Segment:
        """The segment that is written."""
        return self.segments[-1]

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self.segments[-1].next_offset

    @property
    def size(self) -> int:
        """The bytes of all segments."""
        return sum(segment.size for segment in self.segments)

    @property
    def is_flush_wanted(self) -> bool:
        """Whether so many records are not on disk that whoever appended the last must have them flushed.

        Such an append is acknowledged by a leader, and confirmed by a follower, when it is on disk: a replica of either
        kind may be the first to lead after all have lost power. See group_commit.py.
        """
        return self.log_end_offset - self.recovery_point >= self._flush_interval

    @property
    def last_stable_offset(self) -> int:
        """How far a read_committed consumer may read."""
        with self.lock:
            return max(self.producers.last_stable_offset(self.high_watermark), self.log_start_offset)

    @property
    def limits(self) -> Limits:
        """What new segments go by."""
        config = self.config
        return Limits(config.segment_bytes, config.index_interval_bytes, config.segment_index_bytes)

    def advance_high_watermark(self, offset: int) -> None:
        """Note how far the log is replicated; never past its end."""
        with self.lock:
            self.high_watermark = max(min(offset, self.log_end_offset), self.log_start_offset)
            self.producers.on_high_watermark(self.high_watermark)

    def advance_log_start(self, offset: int) -> bool:
        """Let the log begin at `offset`; what lies below is deleted by retention. Return whether that was news."""
        with self.lock:
            if offset <= self.log_start_offset:
                return False
            if offset > self.high_watermark:
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{offset} is above the high watermark")
            self.log_start_offset = offset
            # A full disk does not matter here: a start does this again.
            with suppress(OSError):
                self.leader_epochs.truncate_from_start(offset)
            return True

    # Reading

    def read(
        self, offset: int, max_bytes: int, upper_offset: int | None = None, *, at_least_one: bool = True
    ) -> FileSlice | None:
        """Return whole batches from the one that holds `offset` on; None where there are none below `upper_offset`.

        The slice is no longer than `max_bytes`, except for a single batch where `at_least_one` asks for progress.
        """
        with self.lock:
            found = self._read(offset, max_bytes, upper_offset, at_least_one)
            return None if found is None else found[0]

    def read_committed(
        self, offset: int, max_bytes: int, upper_offset: int, *, at_least_one: bool = True
    ) -> tuple[FileSlice | None, list[tuple[int, int]]]:
        """Do the same for a reader that skips what was aborted: with the aborted transactions in the slice."""
        with self.lock:
            found = self._read(offset, max_bytes, upper_offset, at_least_one)
            if found is None:
                return None, []
            piece, next_offset = found
            return piece, self._aborted(offset, next_offset)

    def _read(
        self, offset: int, max_bytes: int, upper_offset: int | None, at_least_one: bool
    ) -> tuple[FileSlice, int] | None:
        """Return a slice, and an offset above all in it. The caller holds the lock."""
        end_offset = self.log_end_offset
        if not self.log_start_offset <= offset <= end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{offset} of {self.partition} is not within {self.log_start_offset} to {end_offset}",
            )
        upper = end_offset if upper_offset is None else min(upper_offset, end_offset)
        if offset >= upper:
            return None
        try:
            return self._find(offset, max_bytes, upper, at_least_one)
        except FAILURES as error:
            raise self.storage_error(error) from error

    def _find(self, offset: int, max_bytes: int, upper: int, at_least_one: bool) -> tuple[FileSlice, int] | None:
        for index in range(self.index_of(offset), len(self.segments)):
            segment = self.segments[index]
            batch = segment.find(offset)
            if batch is None:
                self._check_nothing_is_missing(segment)
                continue
            if batch.last_offset >= upper:
                return None
            end, next_offset = segment.end_before(batch.position + max_bytes, upper, batch)
            if end == batch.position and at_least_one:
                end, next_offset = batch.end, batch.last_offset + 1
            if end == batch.position:
                return None
            segment.check_found(batch.position, end, self.leader_epochs.epoch_for)
            return FileSlice(segment.file, batch.position, end - batch.position), next_offset
        return None

    def _check_nothing_is_missing(self, segment: Segment) -> None:
        """Tell a hole behind a segment, as compaction leaves them, from a segment that is not there any more."""
        if segment is self.active or segment.size == 0:
            return
        if "compact" in self.config.cleanup_policy or may_have_holes(self.directory):
            return
        end = max(batch.last_offset for batch in segment.headers_from(segment.next_offset - 1)) + 1
        # Every segment has the snapshot of when it was begun.
        if end < segment.next_offset and snapshot_path(self.directory, end).exists():
            raise StorageError(f"{self.directory}: the segment that began at offset {end} is missing")

    def index_of(self, offset: int) -> int:
        """Return the index of the segment that `offset` belongs to. The caller holds the lock."""
        return max(bisect_right(self.segments, offset, key=_BASE_OFFSET_OF) - 1, 0)

    def aborted_transactions(self, from_offset: int, upper_offset: int) -> list[tuple[int, int]]:
        """Return (producer id, first offset) of the aborted transactions with data in the range, by first offset."""
        with self.lock:
            return self._aborted(from_offset, upper_offset)

    def _aborted(self, from_offset: int, upper_offset: int) -> list[tuple[int, int]]:
        try:
            return aborted_within(self._transaction_indexes(from_offset), from_offset, upper_offset)
        except FAILURES as error:
            raise self.storage_error(error) from error

    def _transaction_indexes(self, from_offset: int) -> Iterator[AbortedTransactions]:
        """Yield those that have entries, from the segment of an offset on; each is made sound when it is its turn."""
        for segment in self.segments[self.index_of(from_offset) :]:
            if not segment.is_transaction_index_sound:
                check_transaction_index(self.directory, self.segments, segment)
            if segment.has_aborted:
                yield segment.aborted_transactions

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the largest epoch up to `epoch` that the log knows, and where it ends."""
        with self.lock:
            return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    def storage_error(self, error: Exception) -> KafkaError:
        """Say what went wrong in terms that clients understand; the log is as it was."""
        if not isinstance(error, OSError):
            self.damage = str(error)
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        if self.guard is not None:
            self.guard.failed(error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.directory}: {error.strerror or error}")

    def _jitter(self) -> int:
        jitter_ms = self.config.segment_jitter_ms
        return random.randrange(jitter_ms) if jitter_ms > 0 else 0


def _flush_interval(config: TopicConfig) -> int:
    """After how many records a log is flushed before more is acknowledged."""
    return 1 if config.ottla_flush_before_ack else config.flush_messages
