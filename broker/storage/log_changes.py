"""Cutting, deleting and setting aside the logs of a broker, so that no crash confuses old files with new ones.

A log that is cut has its lower recovery point written down before it takes appends again: else a crash would leave
batches below a recovery point that never covered them, and nobody would check them.

A log that is deleted has its directory renamed at once, which frees the name; the files go after
`file.delete.delay.ms`, or at the next start. Whoever still holds such a log works on in the renamed directory, and
cannot touch the files of a new log of the same name.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import structlog

from ottla.broker.storage.checkpoint import RECOVERY_POINT_CHECKPOINT, sync_directory
from ottla.broker.storage.directory_files import DirectoryKind, directory_name
from ottla.broker.storage.log import Log
from ottla.broker.storage.log_dir import CHECKPOINTS, LogDir
from ottla.broker.storage.logs import Broken, Logs, translated
from ottla.protocol.errors import KafkaError
from ottla.protocol.identifiers import TopicPartition

logger = structlog.get_logger(__name__)

Errors = dict[TopicPartition, KafkaError]


def truncate_to(logs: Logs, offsets: Mapping[TopicPartition, int]) -> Errors:
    """Cut each log back to its offset; return what went wrong."""
    return _cut(logs, offsets, Log.truncate_to)


def truncate_fully_and_start_at(logs: Logs, offsets: Mapping[TopicPartition, int]) -> Errors:
    """Empty each log and let it begin at its offset; return what went wrong."""
    return _cut(logs, offsets, Log.truncate_fully_and_start_at)


def delete(logs: Logs, partitions: Iterable[TopicPartition]) -> Errors:
    """Delete the logs of partitions, passing over those that have none; return what went wrong."""
    return _retire(logs, partitions, DirectoryKind.DELETE)


def set_aside(logs: Logs, partitions: Iterable[TopicPartition]) -> Errors:
    """Rename the directories of partitions that are not this broker's any more, for an operator to look at."""
    return _retire(logs, partitions, DirectoryKind.STRAY)


def mark_broken(logs: Logs, partition: TopicPartition, reason: str) -> None:
    """Stop using a log that turned out to be damaged; its files stay as they are."""
    with logs.change(partition):
        held = logs.place(partition)
        known = {name: held.log_dir.checkpoint(name) for name in CHECKPOINTS}
        rows = {name: offsets[partition] for name, offsets in known.items() if partition in offsets}
        with held.log.lock:
            for segment in held.log.segments:
                segment.discard()
        logs.forget(partition)
        logs.note_broken(partition, Broken(reason, held.log_dir, held.log.directory, rows))


def remove_doomed_directories(logs: Logs) -> int:
    """Remove the deleted directories whose delay is over; return how many."""
    return sum(_remove_directory(path, log_dir) for path, log_dir in logs.take_doomed())


def _remove_directory(path: Path, log_dir: LogDir) -> bool:
    """Remove a deleted directory; what cannot be removed now is at the next start."""
    if not log_dir.is_online:
        return False
    try:
        shutil.rmtree(path)
    except OSError as error:
        log_dir.failed(error)
        logger.warning("deleted_directory_not_removed", path=str(path), reason=str(error))
        return False
    logger.info("deleted_directory_removed", path=str(path))
    return True


def _cut(logs: Logs, offsets: Mapping[TopicPartition, int], cut: Callable[[Log, int], object]) -> Errors:
    errors: Errors = {}
    lowered: dict[LogDir, list[TopicPartition]] = {}
    for partition, offset in offsets.items():
        try:
            log, log_dir = logs.place(partition)
            with translated(partition, log_dir):
                cut(log, offset)
                logs.note_cut(log)
            if log.recovery_point < log_dir.checkpoint(RECOVERY_POINT_CHECKPOINT).get(partition, 0):
                lowered.setdefault(log_dir, []).append(partition)
        except KafkaError as error:
            errors[partition] = error
    for log_dir, partitions in lowered.items():
        try:
            with translated(partitions[0], log_dir):
                logs.checkpoint(RECOVERY_POINT_CHECKPOINT, log_dir)
        except KafkaError as error:
            errors |= dict.fromkeys(partitions, error)
    return errors


def _retire(logs: Logs, partitions: Iterable[TopicPartition], kind: DirectoryKind) -> Errors:
    errors: Errors = {}
    renamed: dict[LogDir, list[TopicPartition]] = {}
    for partition in partitions:
        try:
            with logs.change(partition):
                # First, so that a crash does not leave a copy of what is gone.
                logs.retire_future(partition)
                log_dir = _rename(logs, partition, kind)
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


def _rename(logs: Logs, partition: TopicPartition, kind: DirectoryKind) -> LogDir | None:
    """Rename the directory of a partition and forget it; return where that was, None where there was nothing."""
    broken = logs.broken.get(partition)
    if broken is None and logs.dir_of(partition) is None:
        return None
    log_dir = broken.log_dir if broken is not None else logs.place(partition).log_dir
    path = log_dir.path / directory_name(partition, kind)
    delay_ms = logs.config.log_segment_delete_delay_ms
    with translated(partition, log_dir):
        if broken is not None:
            os.rename(broken.directory, path)
        else:
            log = logs.get(partition)
            delay_ms = log.config.file_delete_delay_ms
            log.close_files()
            log.relocate(path)
    logs.forget(partition)
    logger.info("partition_directory_renamed", partition=str(partition), path=str(path))
    if kind is DirectoryKind.DELETE:
        logs.doom(path, log_dir, delay_ms)
    return log_dir
