"""Moving a log to another directory of its broker: the future log, and how it replaces the current one.

    <topic>-<partition>/                   the current log, in the source directory
    <topic>-<partition>.<32 hex>-future/   its copy in the target directory, which catches up (future_replica.py)

When both have the same batches, and while nothing is appended, `replace_current` exchanges them:

    step                                                  a start after a crash at this point
    1  the future log is on disk, up to its end           goes on copying
    2  the move is noted in it as unfinished              goes on copying
    3  its directory gets the current name                finds two: the source counts, the copy is a future log again
    4  the source's directory is renamed to -delete       finds one: the move is done
    5  the note is removed

Each rename is on disk before the next step. So after a power failure one of the two counts, and it has everything that
was acknowledged. If a disk fails in between, the broker goes on with the other one:

    the target's, at step 3    the source is used. If the copy is found again, it is noted as unfinished
    the source's, at step 4    the copy is used, and noted as finished first: whatever is found there is out of date

If another directory is offline, a copy that is noted as unfinished is a future log too: the source may lie there, and
may have been written since.
"""

from __future__ import annotations

from contextlib import suppress

import structlog

from ottla.broker.storage.checkpoint import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    sync_directory,
)
from ottla.broker.storage.directory_files import (
    DirectoryKind,
    MoveState,
    directory_name,
    may_have_holes,
    note_holes,
    read_topic_id,
    remove_move_state,
    write_move_state,
    write_topic_id,
)
from ottla.broker.storage.log import Log
from ottla.broker.storage.log_dir import LogDir
from ottla.broker.storage.logs import Held, Logs, storage_error, translated
from ottla.broker.storage.producers.producer_snapshot import StoredProducers, write_snapshot
from ottla.broker.storage.producers.producers import Producers
from ottla.protocol.identifiers import TopicPartition

logger = structlog.get_logger(__name__)

_CHECKPOINTS_OF_FUTURE = (RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT)


# Beginning


def move_to(logs: Logs, partition: TopicPartition, target: LogDir) -> bool:
    """Start to move a partition to a directory; return whether a future log was created for it.

    If the partition is in that directory already, a move to another one is cancelled. Raises KafkaError if a directory
    is offline: it may hold a future log of the same partition.
    """
    with logs.change(partition):
        source = logs.place(partition).log_dir
        future = logs.future(partition)
        if future is not None and future.log_dir is not target:
            logs.retire_future(partition)
            future = None
        if source is target or future is not None:
            return False
        for log_dir in logs.dirs:
            if log_dir.offline_reason is not None:
                raise storage_error(f"nothing is moved while a directory cannot be used: {log_dir.offline_reason}")
        with translated(partition, target):
            name = directory_name(partition, DirectoryKind.FUTURE)
            log = logs.open_new(partition, target, name, is_future=True)
            _copy_small_files(logs.get(partition), log)
            sync_directory(target.path)
    logger.info("move_started", partition=str(partition), source=str(source.path), target=str(target.path))
    return True


def lag_of(logs: Logs, future: Log) -> int | None:
    """Return how many offsets a future log is behind; None if the current log cannot be used."""
    current = logs.find(future.partition)
    return None if current is None else max(0, current.log_end_offset - future.log_end_offset)


def _copy_small_files(current: Log, future: Log) -> None:
    topic_id = read_topic_id(current.directory)
    if topic_id is not None and read_topic_id(future.directory) is None:
        write_topic_id(future.directory, topic_id)
    if may_have_holes(current.directory):
        note_holes(future.directory)


# Cutting


def truncate_future(logs: Logs, future: Held, offset: int) -> None:
    """Cut a future log back to an offset; an OSError is reported to its directory."""
    with translated(future.log.partition, future.log_dir):
        future.log.truncate_to(offset)
        _checkpoint_lower_recovery_point(logs, future)


def restart_future(logs: Logs, future: Held, offset: int) -> None:
    """Empty a future log and let it start at an offset."""
    with translated(future.log.partition, future.log_dir):
        future.log.truncate_fully_and_start_at(offset)
        _checkpoint_lower_recovery_point(logs, future)


def _checkpoint_lower_recovery_point(logs: Logs, future: Held) -> None:
    log, log_dir = future
    if log.recovery_point < log_dir.checkpoint(RECOVERY_POINT_CHECKPOINT).get(log.partition, 0):
        logs.checkpoint(RECOVERY_POINT_CHECKPOINT, log_dir)


# Exchanging


def prepare(logs: Logs, future: Held, current: Log) -> None:
    """Do the slow part of an exchange beforehand: flush what the future log has so far."""
    with translated(current.partition, future.log_dir):
        _copy_small_files(current, future.log)
        future.log.flush()
        for name in _CHECKPOINTS_OF_FUTURE:
            logs.checkpoint(name, future.log_dir)


def replace_current(logs: Logs, partition: TopicPartition) -> Log:
    """Replace the current log by the future log, and return it; the steps are listed above.

    The caller has reserved the partition (`Logs.change`), keeps appends and cuts out, and has checked that both logs
    have the same batches. After a KafkaError the current log stays in use.
    """
    current, source = logs.place(partition)
    held = logs.future(partition)
    assert held is not None
    future, target = held
    future_directory = future.directory
    with translated(partition, target):
        _bring_to_disk(logs, current, held)
        write_move_state(future.directory, MoveState.UNFINISHED)
        future.relocate(target.path / directory_name(partition))
        _sync_renamed(target)
    try:
        _retire(logs, current, source)
    except OSError as error:
        source.failed(error)
        with translated(partition, target):
            if source.is_online:
                future.relocate(future_directory)
                _sync_renamed(target)
                raise storage_error(f"{partition} stays in {source.path}: {error}") from error
            write_move_state(future.directory, MoveState.FINISHED)
    else:
        # A note that stays behind is harmless: there is no second copy.
        with suppress(OSError):
            remove_move_state(future.directory)
    _hand_over(current, future)
    logs.exchange(partition)
    logger.info("move_completed", partition=str(partition), source=str(source.path), target=str(target.path))
    return future


def _bring_to_disk(logs: Logs, current: Log, future: Held) -> None:
    """Copy what the batches of the future log do not contain, and force everything to disk.

    Only the current log knows leader epochs whose records compaction removed, producers whose records were deleted, and
    its end offset if compaction removed its last records. The producers are stored as at every roll.
    """
    log, log_dir = future
    with current.lock, log.lock:
        end = current.log_end_offset
        log.leader_epochs.copy_from(current.leader_epochs)
        log.roll_locked(end)
        write_snapshot(log.directory, StoredProducers(end, current.producers.entries()), durable=False)
    log.flush()
    logs.checkpoint(LOG_START_OFFSET_CHECKPOINT, log_dir)


def _retire(logs: Logs, current: Log, source: LogDir) -> None:
    """Rename the directory of a log that has been replaced; its readers go on there."""
    path = source.path / directory_name(current.partition, DirectoryKind.DELETE)
    current.relocate(path)
    _sync_renamed(source)
    current.discard_files()
    logs.doom(path, source, current.config.file_delete_delay_ms)


def _sync_renamed(log_dir: LogDir) -> None:
    """Force a rename to disk. If that fails, the name after a crash is unknown, so the directory goes offline."""
    try:
        sync_directory(log_dir.path)
    except OSError as error:
        log_dir.take_offline(f"a rename could not be forced to disk: {error}")
        raise


def _hand_over(current: Log, future: Log) -> None:
    """Move the producers' state to the future log: the current log knows more than a snapshot keeps.

    Appends that still wait for a flush of the current log are on disk now.
    """
    with current.lock, future.lock:
        future.producers, current.producers = current.producers, Producers()
        current.recovery_point, current.is_replaced = current.log_end_offset, True
    future.advance_high_watermark(current.high_watermark)
