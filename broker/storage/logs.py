"""All logs of a broker, in the directories of `log.dirs`.

A partition is in one of three states: its log is open; its files cannot be used, and it is reported as broken; or it
lies in a directory that went offline. Only the first has a `Log`. The broker works without the others, but never
creates a log of the same name while the old files may come back.

A partition that is being moved to another directory has a second log there, its future log (log_moves.py). No directory
has both, so a row of a checkpoint belongs to the one log in its directory.

A checkpoint may still have rows of a deleted partition. They are removed before a partition of the same name is
created: after a crash, the recovery point or log start of the old log would make the new one lose records.

Lock order: checkpoint writer of a LogDir -> Logs -> log -> state of a LogDir, OpenFiles. The lock of `Logs` protects
its tables and is never held during disk work. `change` lets one thread at a time change a partition.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from ottla.broker.config import BrokerConfig, TopicConfig
from ottla.broker.storage.checkpoint import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    sync_directory,
)
from ottla.broker.storage.directory_files import DirectoryKind, directory_name, read_topic_id, write_topic_id
from ottla.broker.storage.disk_space import Watermark
from ottla.broker.storage.errors import NO_SPACE, StorageError
from ottla.broker.storage.kept_logs import KeptLog, KeptLogs, KeptMark, remove_kept_mark, write_kept_mark
from ottla.broker.storage.log import Clock, Log
from ottla.broker.storage.log_dir import CHECKPOINTS, LogDir, Offsets
from ottla.broker.storage.open_files import OpenFiles
from ottla.broker.storage.recovery.recovery import open_log
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.primitives import uuid_to_text

Errors = dict[TopicPartition, KafkaError]

logger = structlog.get_logger(__name__)

# The offset of a log in each checkpoint, except for the cleaner offsets, which `Logs` keeps.
_OFFSET_OF: Final[Mapping[str, Callable[[Log], int]]] = {
    RECOVERY_POINT_CHECKPOINT: attrgetter("recovery_point"),
    LOG_START_OFFSET_CHECKPOINT: attrgetter("log_start_offset"),
    HIGH_WATERMARK_CHECKPOINT: attrgetter("high_watermark"),
}

# More than any reassignment plan names for a broker; the oldest is dropped first.
PREFERRED_MAX: Final = 100_000


class Held(NamedTuple):
    """An open log and its directory."""

    log: Log
    log_dir: LogDir


class Broken(NamedTuple):
    """A partition whose files cannot be used."""

    reason: str
    log_dir: LogDir
    directory: Path
    # The rows of the checkpoints, kept for a repair.
    checkpoints: Mapping[str, int]


class Doomed(NamedTuple):
    """A deleted directory, and when it may be removed."""

    due_ms: int
    path: Path
    log_dir: LogDir


def watermark_of(config: BrokerConfig) -> Watermark:
    """Return how much space the options keep free."""
    return Watermark(config.ottla_log_min_free_bytes, config.ottla_log_min_free_percent)


class Logs:
    """The logs of a broker by partition. Opened and closed by `startup.open_logs` and `startup.close_logs`."""

    def __init__(
        self,
        config: BrokerConfig,
        config_of: Callable[[str], TopicConfig],
        clock: Clock,
        *,
        statvfs: Callable[[Path], os.statvfs_result] = os.statvfs,
    ) -> None:
        self.config = config
        # Returns the options of a topic: the same object until they change, and then `refresh_configs` is called.
        self.config_of = config_of
        self.clock = clock
        self.files = OpenFiles(config.ottla_log_open_files_max)
        # Set when a directory goes offline or is full, for the thread that calls `drop_offline` and samples space.
        self.attention = threading.Event()
        self.dirs = [
            LogDir(path, watermark_of(config), on_trouble=self.attention.set, statvfs=statvfs)
            for path in config.log_dirs
        ]
        # The state of logs when they were opened after a clean stop; see startup.py.
        self.as_opened: dict[Log, object] = {}
        self._changed = threading.Condition()
        self._held: dict[TopicPartition, Held] = {}
        # Logs that will replace the current logs of their partitions, each in another directory.
        self._futures: dict[TopicPartition, Held] = {}
        # The directories in which partitions without a log should be created.
        self._preferred: dict[TopicPartition, LogDir] = {}
        self._broken: dict[TopicPartition, Broken] = {}
        # The directories of partitions that went offline.
        self._offline: dict[TopicPartition, LogDir] = {}
        self._cleaner_offsets: dict[TopicPartition, int] = {}
        # Partitions that are being created, deleted, renamed or cleaned, and how many threads wait to do so.
        self._changing: set[TopicPartition] = set()
        self._wanted: Counter[TopicPartition] = Counter()
        self._counts: Counter[LogDir] = Counter()
        # Directories with new logs whose names may not be on disk yet.
        self._unsynced: set[LogDir] = set()
        # Directories that `drop_offline` has handled.
        self._dropped: set[LogDir] = set()
        # Deleted logs that may come back.
        self.kept = KeptLogs()
        # Deleted directories.
        self._doomed: list[Doomed] = []

    # Asking

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Log]:
        return iter([held.log for held in self.places()])

    def places(self) -> list[Held]:
        """Return the open logs with their directories."""
        with self._changed:
            return list(self._held.values())

    def find(self, partition: TopicPartition) -> Log | None:
        """Return the log of a partition, if it is open."""
        held = self._held.get(partition)
        return held.log if held is not None else None

    def get(self, partition: TopicPartition) -> Log:
        """Return the log of a partition; KafkaError if there is none, or its disk failed."""
        held = self._held.get(partition)
        if held is None or held.log_dir.offline_reason is not None:
            held = self.place(partition)
        return held.log

    def place(self, partition: TopicPartition) -> Held:
        """Return the log and its directory; KafkaError as for `get`."""
        held = self._held.get(partition)
        if held is None:
            raise self._why_absent(partition)
        if held.log_dir.offline_reason is not None:
            raise storage_error(held.log_dir.offline_reason)
        return held

    def dir_of(self, partition: TopicPartition) -> LogDir | None:
        """Return the directory of a partition, whether it can be used or not."""
        with self._changed:
            place = self._held.get(partition) or self._broken.get(partition)
            return place.log_dir if place is not None else self._offline.get(partition)

    def in_dir(self, log_dir: LogDir) -> list[Log]:
        """Return the open logs of a directory."""
        return [held.log for held in self.places() if held.log_dir is log_dir]

    def dir_at(self, path: str) -> LogDir | None:
        """Return the directory that `log.dirs` has under this path."""
        return next((log_dir for log_dir in self.dirs if log_dir.path == Path(path)), None)

    @property
    def broken(self) -> dict[TopicPartition, Broken]:
        """The partitions whose files cannot be used."""
        with self._changed:
            return dict(self._broken)

    @property
    def online_dirs(self) -> list[LogDir]:
        """The directories that work."""
        return [log_dir for log_dir in self.dirs if log_dir.is_online]

    def topic_id(self, partition: TopicPartition) -> bytes | None:
        """Return the topic id that is stored with an open log; None if there is none."""
        held = self.place(partition)
        with translated(partition, held.log_dir):
            return read_topic_id(held.log.directory)

    # Creating

    def hold(self, log: Log, log_dir: LogDir, *, is_future: bool = False) -> None:
        """Add an open log."""
        log.guard = log_dir
        with self._changed:
            table = self._futures if is_future else self._held
            table[log.partition] = Held(log, log_dir)
            self._counts[log_dir] += 1
        # The options may have changed before the log could be found here.
        config = self.config_of(log.partition.topic)
        if config is not log.config:
            log.config = config

    def note_broken(self, partition: TopicPartition, broken: Broken) -> None:
        """Add a partition whose files cannot be used."""
        logger.error("partition_broken", partition=str(partition), path=str(broken.directory), reason=broken.reason)
        with self._changed:
            self._broken[partition] = broken

    def note_offline(self, partition: TopicPartition, log_dir: LogDir) -> None:
        """Add a partition that lies in an offline directory."""
        with self._changed:
            self._offline[partition] = log_dir

    def create(self, partition: TopicPartition, topic_id: bytes | None, *, is_new: bool = True) -> Log:
        """Return the log of a partition; create it in the preferred directory, or the emptiest, if there is none.

        Without `is_new` it is not created while a directory is offline: it may lie there.
        """
        if self.find(partition) is None:
            with self.change(partition):
                if self.find(partition) is None:
                    self._check_creatable(partition, is_new=is_new)
                    with self.kept.lock:
                        kept = self.kept.take(topic_id, partition.partition)
                        if kept is not None:
                            self._bring_back(partition, kept)
                    if kept is None:
                        self._create(partition)
        log, log_dir = self.place(partition)
        if topic_id is not None:
            with translated(partition, log_dir):
                self._settle_topic_id(log, topic_id)
        return log

    def _settle_topic_id(self, log: Log, topic_id: bytes) -> None:
        """Make sure that the log belongs to this topic; store the topic id if the log has none."""
        known = read_topic_id(log.directory)
        if known is None:
            with self.change(log.partition):
                write_topic_id(log.directory, topic_id)
        elif known != topic_id:
            raise KafkaError(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"{log.partition} here is of topic id {uuid_to_text(known)}, not {uuid_to_text(topic_id)}",
            )

    def _create(self, partition: TopicPartition) -> None:
        log_dir = self._wanted_dir(partition)
        # A leftover future log was copied from a log that is gone.
        self.retire_future(partition)
        self.open_new(partition, log_dir, directory_name(partition))
        with self._changed:
            self._unsynced.add(log_dir)
            self._preferred.pop(partition, None)

    def _bring_back(self, partition: TopicPartition, kept: KeptLog) -> None:
        """Make a kept log the log of a partition again. The caller holds the lock of the kept logs."""
        log_dir, mark = kept.log_dir, kept.mark
        directory = log_dir.path / directory_name(partition)
        self.retire_future(partition)
        try:
            with translated(partition, log_dir):
                os.rename(kept.path, directory)
        except KafkaError:
            self.kept.put_back(kept)
            raise
        with translated(partition, log_dir):
            sync_directory(log_dir.path)
            log = open_log(
                directory,
                partition,
                self.config_of(partition.topic),
                self.files,
                self.clock,
                recovery_point=mark.recovery_point,
                log_start_offset=mark.log_start_offset,
            )
            log.advance_high_watermark(mark.high_watermark)
        self.hold(log, log_dir)
        with translated(partition, log_dir):
            for checkpoint in _OFFSET_OF:
                self.checkpoint(checkpoint, log_dir)
            remove_kept_mark(directory)
        logger.info("kept_log_brought_back", partition=str(partition), log_end_offset=log.log_end_offset)

    def open_new(self, partition: TopicPartition, log_dir: LogDir, name: str, *, is_future: bool = False) -> Log:
        """Create an empty log in a directory that has none of this partition."""
        with translated(partition, log_dir):
            for checkpoint in CHECKPOINTS:
                if log_dir.may_tell_of(checkpoint, partition):
                    self.checkpoint(checkpoint, log_dir)
            config = self.config_of(partition.topic)
            log = open_log(log_dir.path / name, partition, config, self.files, self.clock)
        self.hold(log, log_dir, is_future=is_future)
        return log

    def sync_created(self) -> None:
        """Force the names of new logs to disk, many at once. Called before anything is appended to them."""
        with self._changed:
            unsynced, self._unsynced = self._unsynced, set()
        for log_dir in unsynced:
            try:
                sync_directory(log_dir.path)
            except OSError as error:
                log_dir.failed(error)

    def _wanted_dir(self, partition: TopicPartition) -> LogDir:
        """Return the directory for a new log: the one it should be moved to, or else the one with the fewest logs."""
        future = self.future(partition)
        wanted = self._preferred.get(partition) or (future.log_dir if future is not None else None)
        return wanted if wanted is not None and wanted.refusal is None else self._emptiest()

    def _emptiest(self) -> LogDir:
        usable = [log_dir for log_dir in self.dirs if log_dir.refusal is None]
        if not usable:
            reasons = "; ".join(str(log_dir.refusal) for log_dir in self.dirs)
            raise storage_error(f"no log directory is usable: {reasons}")
        return min(usable, key=lambda log_dir: (log_dir.is_space_low, self._counts[log_dir]))

    def _check_creatable(self, partition: TopicPartition, *, is_new: bool) -> None:
        absent = self._why_absent(partition)
        if absent.code is ErrorCode.KAFKA_STORAGE_ERROR:
            raise absent
        for log_dir in self.dirs:
            if not is_new and log_dir.offline_reason is not None:
                raise storage_error(f"{partition} may lie in a directory that cannot be used: {log_dir.offline_reason}")

    def _why_absent(self, partition: TopicPartition) -> KafkaError:
        with self._changed:
            broken, log_dir = self._broken.get(partition), self._offline.get(partition)
        if broken is not None:
            return storage_error(f"the files of {partition} cannot be used: {broken.reason}")
        if log_dir is not None:
            return storage_error(str(log_dir.offline_reason))
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{partition} has no log here")

    # Changing

    def refresh_configs(self, topic: str | None = None) -> None:
        """Apply the present options of a topic, or of all topics, to its open logs."""
        for log, _ in [*self.places(), *self.futures()]:
            if topic is None or log.partition.topic == topic:
                config = self.config_of(log.partition.topic)
                log.config = config
                if "compact" not in config.cleanup_policy:
                    with self._changed:
                        self._cleaner_offsets.pop(log.partition, None)

    def keep_free(self, watermark: Watermark) -> None:
        """Keep this much space free from now on; the next sample, which comes at once, decides who is refused."""
        for log_dir in self.dirs:
            log_dir.watermark = watermark
        self.attention.set()

    def drop_offline(self) -> dict[LogDir, list[TopicPartition]]:
        """Drop the directories that went offline since the last call; return them with their partitions."""
        with self._changed:
            lost: dict[LogDir, list[TopicPartition]] = {
                log_dir: [] for log_dir in self.dirs if not log_dir.is_online and log_dir not in self._dropped
            }
            self._dropped.update(lost)
            gone = {partition: held for partition, held in self._held.items() if held.log_dir in lost}
            for partition, (_, log_dir) in gone.items():
                del self._held[partition]
                self._offline[partition] = log_dir
                lost[log_dir].append(partition)
            for partition, broken in list(self._broken.items()):
                if broken.log_dir in lost:
                    del self._broken[partition]
                    self._offline[partition] = broken.log_dir
            futures = {partition: held for partition, held in self._futures.items() if held.log_dir in lost}
            for partition in futures:
                del self._futures[partition]
        for log, _ in [*gone.values(), *futures.values()]:
            self.as_opened.pop(log, None)
            # Nothing is written or trimmed on a failed disk: the descriptors close with the last slice.
            for segment in list(log.segments):
                self.files.closed(segment)
        return lost

    @contextmanager
    def change(self, partition: TopicPartition) -> Iterator[None]:
        """Reserve the files of a partition: other threads that create, rename or clean it wait."""
        with self._changed:
            self._wanted[partition] += 1
            while partition in self._changing:
                self._changed.wait()
            self._wanted[partition] -= 1
            if not self._wanted[partition]:
                del self._wanted[partition]
            self._changing.add(partition)
        try:
            yield
        finally:
            with self._changed:
                self._changing.discard(partition)
                self._changed.notify_all()

    def is_wanted(self, partition: TopicPartition) -> bool:
        """Whether another thread waits to change a partition; a long change should then end early."""
        return partition in self._wanted

    # Cutting

    def truncate_to(self, offsets: Mapping[TopicPartition, int]) -> Errors:
        """Cut each log back to its offset; return what went wrong."""
        return self._cut(offsets, Log.truncate_to)

    def truncate_fully_and_start_at(self, offsets: Mapping[TopicPartition, int]) -> Errors:
        """Empty each log and let it begin at its offset; return what went wrong."""
        return self._cut(offsets, Log.truncate_fully_and_start_at)

    def _cut(self, offsets: Mapping[TopicPartition, int], cut: Callable[[Log, int], object]) -> Errors:
        """Cut logs, and checkpoint their lower recovery points before they take appends again.

        Otherwise a crash would leave batches below a recovery point that never covered them, and nobody would check
        them.
        """
        errors: Errors = {}
        lowered: dict[LogDir, list[TopicPartition]] = {}
        for partition, offset in offsets.items():
            try:
                log, log_dir = self.place(partition)
                with translated(partition, log_dir):
                    cut(log, offset)
                    self._note_cut(log)
                if log.recovery_point < log_dir.checkpoint(RECOVERY_POINT_CHECKPOINT).get(partition, 0):
                    lowered.setdefault(log_dir, []).append(partition)
            except KafkaError as error:
                errors[partition] = error
        for log_dir, partitions in lowered.items():
            try:
                with translated(partitions[0], log_dir):
                    self.checkpoint(RECOVERY_POINT_CHECKPOINT, log_dir)
            except KafkaError as error:
                errors |= dict.fromkeys(partitions, error)
        return errors

    def _note_cut(self, log: Log) -> None:
        """Lower the offset up to which a log is clean: what is appended behind its new end is dirty."""
        with self._changed:
            known = self._cleaner_offsets.get(log.partition)
            if known is not None:
                self._cleaner_offsets[log.partition] = min(known, log.log_end_offset)

    # Deleting

    def delete(self, partitions: Iterable[TopicPartition], *, kept_until_ms: int | None = None) -> Errors:
        """Delete the logs of partitions, skipping those that have none; return what went wrong.

        The directory is renamed at once, which frees the name. The files are removed after `file.delete.delay.ms`, or
        at the next start; or they are kept until a time, for a topic that can be brought back. Callers that still hold
        such a log work on in the renamed directory, and cannot touch the files of a new log of the same name.
        """
        return self._retire(partitions, DirectoryKind.DELETE, kept_until_ms)

    def set_aside(self, partitions: Iterable[TopicPartition]) -> Errors:
        """Rename the directories of partitions that are not this broker's any more, for an operator to look at."""
        return self._retire(partitions, DirectoryKind.STRAY)

    def mark_broken(self, partition: TopicPartition, reason: str) -> None:
        """Stop using a log that turned out to be damaged; its files stay as they are."""
        with self.change(partition):
            log, log_dir = self.place(partition)
            broken = Broken(reason, log_dir, log.directory, log_dir.checkpoints_of(partition))
            log.discard_files()
            self._forget(partition)
            self.note_broken(partition, broken)

    def _retire(
        self, partitions: Iterable[TopicPartition], kind: DirectoryKind, kept_until_ms: int | None = None
    ) -> Errors:
        errors: Errors = {}
        renamed: dict[LogDir, list[TopicPartition]] = {}
        for partition in partitions:
            try:
                with self.change(partition):
                    # First, so that a crash does not leave a copy of what is gone.
                    self.retire_future(partition)
                    log_dir = self._rename(partition, kind, kept_until_ms)
                if log_dir is not None:
                    renamed.setdefault(log_dir, []).append(partition)
            except KafkaError as error:
                errors[partition] = error
        for log_dir, there in renamed.items():
            try:
                with translated(there[0], log_dir):
                    sync_directory(log_dir.path)
            except KafkaError as error:
                errors |= dict.fromkeys(there, error)
        return errors

    def _rename(self, partition: TopicPartition, kind: DirectoryKind, kept_until_ms: int | None) -> LogDir | None:
        """Rename the directory of a partition and forget it; return its log directory, None if there was nothing."""
        broken = self.broken.get(partition)
        if broken is None and self.dir_of(partition) is None:
            return None
        log_dir = broken.log_dir if broken is not None else self.place(partition).log_dir
        path = log_dir.path / directory_name(partition, kind)
        delay_ms = self.config.log_segment_delete_delay_ms
        with translated(partition, log_dir):
            if broken is not None:
                os.rename(broken.directory, path)
            else:
                log = self.get(partition)
                delay_ms = log.config.file_delete_delay_ms
                log.close_files()
                if kept_until_ms is not None and not _mark_kept(log, kept_until_ms):
                    self._give_up(log, log_dir)
                log.relocate(path)
        self._forget(partition)
        logger.info("partition_directory_renamed", partition=str(partition), path=str(path))
        if kind is DirectoryKind.DELETE:
            if kept_until_ms is None:
                # From a deletion that failed half-way.
                remove_kept_mark(path)
            if not self.kept.found(path, partition.partition, log_dir):
                self.doom(path, log_dir, delay_ms)
        return log_dir

    def _give_up(self, log: Log, log_dir: LogDir) -> None:
        """Say that a log cannot be kept; KafkaError if nobody hears, so that its deletion is tried again."""
        partition = log.partition
        topic_id = read_topic_id(log.directory)
        if topic_id is not None:
            mark = KeptMark(0, partition.topic, 0, 0, 0)
            if not self.kept.may_give_up(KeptLog(topic_id, partition.partition, log.directory, log_dir, mark)):
                raise storage_error(f"{partition} is not deleted: it can neither be kept nor be given up")

    def _forget(self, partition: TopicPartition) -> None:
        """Free the name of a partition. The caller has moved its files away."""
        with self._changed:
            held = self._held.pop(partition, None)
            if held is not None:
                self._counts[held.log_dir] -= 1
                self.as_opened.pop(held.log, None)
            self._broken.pop(partition, None)
            self._cleaner_offsets.pop(partition, None)

    def doom(self, path: Path, log_dir: LogDir, delay_ms: int) -> None:
        """Schedule the removal of a deleted directory."""
        with self._changed:
            self._doomed.append(Doomed(self.clock() + delay_ms, path, log_dir))

    def remove_doomed_directories(self) -> int:
        """Remove the deleted directories whose delay is over, or whose space is needed; return how many.

        A directory that cannot be removed now is removed after the next start.
        """
        now_ms = self.clock()
        self.kept.give_up_due(now_ms, lambda kept: self.doom(kept.path, kept.log_dir, delay_ms=0))
        with self._changed:
            due = [doomed for doomed in self._doomed if doomed.due_ms <= now_ms or doomed.log_dir.is_space_low]
            self._doomed = [doomed for doomed in self._doomed if doomed not in due]
        if due:
            # Here, because it brings compression libraries along.
            import shutil
        removed = 0
        for _, path, log_dir in due:
            if not log_dir.is_online:
                continue
            try:
                shutil.rmtree(path)
            except OSError as error:
                log_dir.failed(error)
                logger.warning("deleted_directory_not_removed", path=str(path), reason=str(error))
            else:
                logger.info("deleted_directory_removed", path=str(path))
                removed += 1
        return removed

    # Moving to another directory

    def prefer(self, partition: TopicPartition, log_dir: LogDir) -> None:
        """Remember which directory a partition should be created in."""
        with self._changed:
            self._preferred.pop(partition, None)
            if len(self._preferred) >= PREFERRED_MAX:
                del self._preferred[next(iter(self._preferred))]
            self._preferred[partition] = log_dir

    def future(self, partition: TopicPartition) -> Held | None:
        """Return the future log of a partition that is being moved."""
        return self._futures.get(partition)

    def futures(self) -> list[Held]:
        """Return the future logs with their directories."""
        with self._changed:
            return list(self._futures.values())

    def futures_in(self, log_dir: LogDir) -> list[Log]:
        """Return the future logs of a directory."""
        return [held.log for held in self.futures() if held.log_dir is log_dir]

    def retire_future(self, partition: TopicPartition) -> None:
        """Drop the future log of a partition, if it has one; its files are removed later. The caller has `change`."""
        held = self.future(partition)
        if held is None:
            return
        log, log_dir = held
        path = log_dir.path / directory_name(partition, DirectoryKind.DELETE)
        # On a failed disk it stays. A start that finds it there drops it.
        if log_dir.is_online:
            with translated(partition, log_dir):
                log.relocate(path)
                sync_directory(log_dir.path)
            log.discard_files()
            self.doom(path, log_dir, delay_ms=0)
        with self._changed:
            self._futures.pop(partition, None)
            self._counts[log_dir] -= 1
            self.as_opened.pop(log, None)
        logger.info("future_log_dropped", partition=str(partition), directory=str(log_dir.path))

    def exchange(self, partition: TopicPartition) -> None:
        """Make the future log the log of its partition. The caller has exchanged the files."""
        with self._changed:
            old, new = self._held[partition], self._futures.pop(partition)
            self._held[partition] = new
            self._counts[old.log_dir] -= 1
            self.as_opened.pop(old.log, None)

    # Checkpoints

    def checkpoint(self, name: str, log_dir: LogDir) -> bool:
        """Write a checkpoint of a directory if it changed; return whether it did."""
        return log_dir.write_checkpoint(name, lambda: self._offsets(name, log_dir))

    def cleaner_offset(self, partition: TopicPartition) -> int | None:
        """Return up to which offset a log is clean."""
        return self._cleaner_offsets.get(partition)

    def note_cleaned(self, log: Log, offset: int, cuts: int) -> None:
        """Note up to which offset a log is clean, unless it was cut since its count of cuts was `cuts`."""
        with self._changed:
            if self.find(log.partition) is log and log.cuts == cuts:
                self._cleaner_offsets[log.partition] = offset

    def _offsets(self, name: str, log_dir: LogDir) -> Offsets:
        with self._changed:
            held_logs = [*self._held.values()]
            if name != CLEANER_OFFSET_CHECKPOINT:
                held_logs += self._futures.values()
            logs = [held.log for held in held_logs if held.log_dir is log_dir]
            offsets = {
                partition: broken.checkpoints[name]
                for partition, broken in self._broken.items()
                if broken.log_dir is log_dir and name in broken.checkpoints
            }
            cleaned = dict(self._cleaner_offsets) if name == CLEANER_OFFSET_CHECKPOINT else {}
        if name == CLEANER_OFFSET_CHECKPOINT:
            return offsets | {log.partition: cleaned[log.partition] for log in logs if log.partition in cleaned}
        offset_of = _OFFSET_OF[name]
        return offsets | {log.partition: offset_of(log) for log in logs}


def _mark_kept(log: Log, kept_until_ms: int) -> bool:
    """Note that a log is kept; return False if the disk is too full even for that."""
    offsets = (log.recovery_point, log.log_start_offset, log.high_watermark)
    try:
        write_kept_mark(log.directory, KeptMark(kept_until_ms, log.partition.topic, *offsets))
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        logger.warning("deleted_log_not_kept", partition=str(log.partition), reason=str(error))
        return False
    return True


def storage_error(detail: str) -> KafkaError:
    """Return the error that makes clients look for another replica."""
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, detail)


@contextmanager
def translated(partition: TopicPartition, log_dir: LogDir) -> Iterator[None]:
    """Report an OSError to the directory, and raise it, or a StorageError, as KAFKA_STORAGE_ERROR."""
    try:
        yield
    except OSError as error:
        log_dir.failed(error)
        raise storage_error(f"{partition} in {log_dir.path}: {error}") from error
    except StorageError as error:
        raise storage_error(str(error)) from error
