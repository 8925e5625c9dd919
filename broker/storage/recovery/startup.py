"""Opening all logs of a broker at start, and closing them at stop.

After a clean stop the logs are opened without looking inside. After any other stop, what lies past the recovery points
is read and checked. If the files of a partition cannot be used, or a disk fails, the others are opened nevertheless. A
stop flushes the logs, then writes the checkpoints, and finally the mark of a clean shutdown. A directory in which
anything failed does not get that mark.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress

import structlog

from ottla.broker.storage.checkpoint import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from ottla.broker.storage.directory_files import DirectoryKind, MetaProperties, directory_name, parse_directory_name
from ottla.broker.storage.errors import StorageError
from ottla.broker.storage.kept_logs import read_kept_mark, remove_kept_mark
from ottla.broker.storage.log import Log
from ottla.broker.storage.log_dir import CHECKPOINTS, LogDir
from ottla.broker.storage.logs import Broken, Logs
from ottla.broker.storage.recovery.interrupted_moves import FoundDirectory, drop_directory, settle_moves
from ottla.broker.storage.recovery.per_directory import for_each_in_directories
from ottla.broker.storage.recovery.recovery import close_log, open_log
from ottla.protocol.identifiers import TopicPartition

logger = structlog.get_logger(__name__)


def open_logs(logs: Logs, owner: MetaProperties, *, now_seconds: Callable[[], float] = time.monotonic) -> Logs:
    """Open every log in the directories of `log.dirs`; return the same logs.

    Raises StorageError if a directory belongs to another broker, or if none can be used.
    """
    try:
        for log_dir in logs.dirs:
            log_dir.claim(owner)
        # All belong to this broker: only now is anything in them changed.
        for log_dir in logs.dirs:
            log_dir.begin()
        found = {log_dir: _partitions_in(logs, log_dir) for log_dir in logs.online_dirs}
        if not logs.online_dirs:
            raise StorageError("; ".join(str(log_dir.offline_reason) for log_dir in logs.dirs))
        settle_moves(logs, found)
        _refuse_duplicates(logs, found)
        _open_all(logs, found, now_seconds)
    except BaseException:
        for log_dir in logs.dirs:
            log_dir.release()
        raise
    return logs


def close_logs(logs: Logs, broker_epoch: int, *, now_seconds: Callable[[], float] = time.monotonic) -> None:
    """Close every log, and mark the directories without failures. Nothing else may use the logs any more."""
    failed: set[LogDir] = {broken.log_dir for broken in logs.broken.values()}

    def close(log_dir: LogDir, log: Log) -> None:
        try:
            _close(logs, log)
        except Exception as error:
            failed.add(log_dir)
            if isinstance(error, OSError):
                log_dir.failed(error)
            logger.exception("log_not_closed", partition=str(log.partition))

    for log_dir in logs.dirs:
        log_dir.refuse("the broker is stopping")
    work = {log_dir: [*logs.in_dir(log_dir), *logs.futures_in(log_dir)] for log_dir in logs.online_dirs}
    threads = logs.config.num_recovery_threads_per_data_dir
    for_each_in_directories(lambda _: "closed", work, close, threads, now_seconds)
    for log_dir in logs.dirs:
        try:
            for name in CHECKPOINTS:
                logs.checkpoint(name, log_dir)
            log_dir.close(None if log_dir in failed else broker_epoch)
        except OSError:
            logger.exception("log_directory_not_closed", directory=str(log_dir.path))
            log_dir.release()


def _partitions_in(logs: Logs, log_dir: LogDir) -> list[FoundDirectory]:
    """Return the partitions in a directory; schedule the removal of deleted ones."""
    found = []
    try:
        names = [entry.name for entry in os.scandir(log_dir.path) if entry.is_dir()]
    except OSError as error:
        log_dir.take_offline(str(error))
        return []
    for name in names:
        parsed = parse_directory_name(name)
        path = log_dir.path / name
        if parsed is None:
            logger.warning("directory_ignored", path=str(path), reason="not a partition")
        elif parsed.kind in (DirectoryKind.CURRENT, DirectoryKind.FUTURE):
            found.append(FoundDirectory(parsed.partition, path, is_future=parsed.kind is DirectoryKind.FUTURE))
        elif parsed.kind is DirectoryKind.DELETE:
            if not logs.kept.found(path, parsed.partition.partition, log_dir):
                logs.doom(path, log_dir, delay_ms=0)
        else:
            logger.warning("directory_ignored", path=str(path), reason=f"{parsed.kind.value} partition")
    return found


def _refuse_duplicates(logs: Logs, found: dict[LogDir, list[FoundDirectory]]) -> None:
    """Report a partition with two directories as broken: nothing shows which of them is right."""
    places: dict[TopicPartition, list[tuple[LogDir, FoundDirectory]]] = {}
    for log_dir, there in found.items():
        for each in there:
            if not each.is_future:
                places.setdefault(each.partition, []).append((log_dir, each))
    for partition, copies in places.items():
        if len(copies) > 1:
            where = " and ".join(str(log_dir.path) for log_dir, _ in copies)
            logs.note_broken(partition, _broken(f"it is in {where}; move one of them away", copies[0][0], partition))
            for log_dir, each in copies:
                found[log_dir].remove(each)


def _open_all(logs: Logs, found: dict[LogDir, list[FoundDirectory]], now_seconds: Callable[[], float]) -> None:
    def open_one(log_dir: LogDir, each: FoundDirectory) -> None:
        try:
            _open(logs, log_dir, each)
        except Exception as error:
            # The other partitions are opened, whatever is wrong with this one.
            if isinstance(error, OSError):
                log_dir.failed(error)
            if not log_dir.is_online:
                return
            reason = f"{type(error).__name__}: {error}"
            if each.is_future:
                logger.warning("future_log_unusable", path=str(each.directory), reason=reason)
                with suppress(OSError):
                    drop_directory(logs, log_dir, each)
            else:
                logs.note_broken(each.partition, _broken(reason, log_dir, each.partition))

    threads = logs.config.num_recovery_threads_per_data_dir
    for_each_in_directories(_verb, found, open_one, threads, now_seconds)
    for log_dir, there in found.items():
        if not log_dir.is_online:
            for each in there:
                if not each.is_future:
                    logs.note_offline(each.partition, log_dir)


def _verb(log_dir: LogDir) -> str:
    return "opened" if log_dir.was_clean else "recovered"


def _open(logs: Logs, log_dir: LogDir, found: FoundDirectory) -> None:
    partition = found.partition
    # A crash came between bringing a deleted log back and its first checkpoints.
    kept = read_kept_mark(found.directory)
    log = open_log(
        found.directory,
        partition,
        logs.config_of(partition.topic),
        logs.files,
        logs.clock,
        recovery_point=log_dir.checkpoint(RECOVERY_POINT_CHECKPOINT).get(partition, kept.recovery_point if kept else 0),
        log_start_offset=log_dir.checkpoint(LOG_START_OFFSET_CHECKPOINT).get(
            partition, kept.log_start_offset if kept else 0
        ),
        was_clean=log_dir.was_clean,
    )
    if log_dir.was_clean:
        logs.as_opened[log] = _state(log)
    log.advance_high_watermark(
        log_dir.checkpoint(HIGH_WATERMARK_CHECKPOINT).get(partition, kept.high_watermark if kept else 0)
    )
    logs.hold(log, log_dir, is_future=found.is_future)
    if kept is not None:
        for name in (RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT):
            logs.checkpoint(name, log_dir)
        remove_kept_mark(found.directory)
    if found.is_future:
        return
    cleaned = log_dir.checkpoint(CLEANER_OFFSET_CHECKPOINT).get(partition)
    if cleaned is not None:
        logs.note_cleaned(log, cleaned, log.cuts)


def _state(log: Log) -> tuple[int, int, int]:
    """Return what changes with every append, roll and cut: if it is equal, the files are unchanged."""
    return log.log_end_offset, log.active.base_offset, log.cuts


def _close(logs: Logs, log: Log) -> None:
    if log.recovery_point < log.log_end_offset or logs.as_opened.get(log) != _state(log):
        close_log(log)
        return
    # Most logs of a large broker are unchanged since a clean stop: nothing needs to be forced to disk again.
    with log.lock:
        for segment in log.segments:
            segment.close_files()


def _broken(reason: str, log_dir: LogDir, partition: TopicPartition) -> Broken:
    directory = log_dir.path / directory_name(partition)
    return Broken(reason, log_dir, directory, log_dir.checkpoints_of(partition))
