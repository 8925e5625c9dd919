"""Opening all logs of a broker at start, and closing them at stop.

After a clean stop the logs are opened without looking inside; after any other, what lies past the recovery points is
read and checked. A partition whose files cannot be used, and a directory whose disk fails, do not keep the others
from opening. A stop flushes, then writes the checkpoints, and last of all the mark of a clean stop; a directory in
which anything went wrong does not get that mark.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

from ottla.broker.config import BrokerConfig, TopicConfig
from ottla.broker.storage.checkpoint import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from ottla.broker.storage.directory_files import DirectoryKind, MetaProperties, directory_name, parse_directory_name
from ottla.broker.storage.errors import StorageError
from ottla.broker.storage.log import Clock, Log
from ottla.broker.storage.log_dir import CHECKPOINTS, LogDir
from ottla.broker.storage.logs import Broken, Logs
from ottla.broker.storage.recovery.per_directory import for_each_in_directories
from ottla.broker.storage.recovery.recovery import close_log, open_log
from ottla.protocol.identifiers import TopicPartition

logger = logging.getLogger(__name__)


def open_logs(
    config: BrokerConfig,
    owner: MetaProperties,
    config_of: Callable[[str], TopicConfig],
    clock: Clock,
    *,
    statvfs: Callable[[Path], os.statvfs_result] = os.statvfs,
    now_seconds: Callable[[], float] = time.monotonic,
) -> Logs:
    """Open every log in the directories of `log.dirs`.

    Raises StorageError where a directory is somebody else's, or none can be used.
    """
    logs = Logs(config, config_of, clock, statvfs=statvfs)
    try:
        for log_dir in logs.dirs:
            log_dir.claim(owner)
        # All are ours: only now is anything changed in them.
        for log_dir in logs.dirs:
            log_dir.begin()
        found = {log_dir: _partitions_in(logs, log_dir) for log_dir in logs.online_dirs}
        if not logs.online_dirs:
            raise StorageError("; ".join(str(log_dir.offline_reason) for log_dir in logs.dirs))
        _set_duplicates_apart(logs, found)
        _open_all(logs, found, now_seconds)
    except BaseException:
        for log_dir in logs.dirs:
            log_dir.release()
        raise
    return logs


def close_logs(logs: Logs, broker_epoch: int, *, now_seconds: Callable[[], float] = time.monotonic) -> None:
    """Close every log, and mark the directories in which all went well. Nothing else may use the logs any more."""
    failed: set[LogDir] = {broken.log_dir for broken in logs.broken.values()}

    def close(log_dir: LogDir, log: Log) -> None:
        try:
            _close(logs, log)
        except Exception as error:
            failed.add(log_dir)
            if isinstance(error, OSError):
                log_dir.failed(error)
            logger.exception("log not closed: %s", log.partition)

    for log_dir in logs.dirs:
        log_dir.refuse("the broker is stopping")
    work = {log_dir: logs.in_dir(log_dir) for log_dir in logs.online_dirs}
    threads = logs.config.num_recovery_threads_per_data_dir
    for_each_in_directories(lambda _: "closed", work, close, threads, now_seconds)
    for log_dir in logs.dirs:
        try:
            for name in CHECKPOINTS:
                logs.checkpoint(name, log_dir)
            log_dir.close(None if log_dir in failed else broker_epoch)
        except OSError:
            logger.exception("log directory not closed in order: %s", log_dir.path)
            log_dir.release()


def _partitions_in(logs: Logs, log_dir: LogDir) -> list[TopicPartition]:
    """Return the partitions in a directory; what is left of deleted ones is removed in the background."""
    partitions = []
    try:
        names = [entry.name for entry in os.scandir(log_dir.path) if entry.is_dir()]
    except OSError as error:
        log_dir.take_offline(str(error))
        return []
    for name in names:
        parsed = parse_directory_name(name)
        if parsed is None:
            logger.warning("not a partition directory, left alone: %s", log_dir.path / name)
        elif parsed.kind is DirectoryKind.CURRENT:
            partitions.append(parsed.partition)
        elif parsed.kind is DirectoryKind.DELETE:
            logs.doom(log_dir.path / name, log_dir, delay_ms=0)
        else:
            logger.warning("%s partition directory, left alone: %s", parsed.kind.value, log_dir.path / name)
    return partitions


def _set_duplicates_apart(logs: Logs, found: dict[LogDir, list[TopicPartition]]) -> None:
    """Open none of two directories of one partition: nothing says which of them is right."""
    places: dict[TopicPartition, list[LogDir]] = {}
    for log_dir, partitions in found.items():
        for partition in partitions:
            places.setdefault(partition, []).append(log_dir)
    for partition, log_dirs in places.items():
        if len(log_dirs) > 1:
            where = " and ".join(str(log_dir.path) for log_dir in log_dirs)
            logs.note_broken(partition, _broken(f"it is in {where}; move one of them away", log_dirs[0], partition))
            for log_dir in log_dirs:
                found[log_dir].remove(partition)


def _open_all(logs: Logs, found: dict[LogDir, list[TopicPartition]], now_seconds: Callable[[], float]) -> None:
    def open_one(log_dir: LogDir, partition: TopicPartition) -> None:
        try:
            _open(logs, log_dir, partition)
        except Exception as error:
            # Whatever is wrong with one partition, the others shall open.
            if isinstance(error, OSError):
                log_dir.failed(error)
            if log_dir.is_online:
                logs.note_broken(partition, _broken(f"{type(error).__name__}: {error}", log_dir, partition))

    threads = logs.config.num_recovery_threads_per_data_dir
    for_each_in_directories(_verb, found, open_one, threads, now_seconds)
    for log_dir, partitions in found.items():
        if not log_dir.is_online:
            for partition in partitions:
                logs.note_offline(partition, log_dir)


def _verb(log_dir: LogDir) -> str:
    return "opened" if log_dir.was_clean else "recovered"


def _open(logs: Logs, log_dir: LogDir, partition: TopicPartition) -> None:
    log = open_log(
        log_dir.path / directory_name(partition),
        partition,
        logs.config_of(partition.topic),
        logs.files,
        logs.clock,
        recovery_point=log_dir.checkpoint(RECOVERY_POINT_CHECKPOINT).get(partition, 0),
        log_start_offset=log_dir.checkpoint(LOG_START_OFFSET_CHECKPOINT).get(partition, 0),
        was_clean=log_dir.was_clean,
    )
    if log_dir.was_clean:
        logs.as_opened[log] = _state(log)
    log.advance_high_watermark(log_dir.checkpoint(HIGH_WATERMARK_CHECKPOINT).get(partition, 0))
    logs.hold(log, log_dir)
    cleaned = log_dir.checkpoint(CLEANER_OFFSET_CHECKPOINT).get(partition)
    if cleaned is not None:
        logs.note_cleaned(log, cleaned, log.cuts)


def _state(log: Log) -> tuple[int, int, int]:
    """What changes with every append, roll and cut: the files are as they were while this is."""
    return log.log_end_offset, log.active.base_offset, log.cuts


def _close(logs: Logs, log: Log) -> None:
    if log.recovery_point < log.log_end_offset or logs.as_opened.get(log) != _state(log):
        close_log(log)
        return
    # Most logs of a large broker: a clean stop left them so, and nothing needs to be forced to disk again.
    with log.lock:
        for segment in log.segments:
            segment.close_files()


def _broken(reason: str, log_dir: LogDir, partition: TopicPartition) -> Broken:
    known = {name: log_dir.checkpoint(name) for name in CHECKPOINTS}
    rows = {name: offsets[partition] for name, offsets in known.items() if partition in offsets}
    return Broken(reason, log_dir, log_dir.path / directory_name(partition), rows)
