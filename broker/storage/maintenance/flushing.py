"""Forcing a log to disk. Nothing here holds the log's lock while the disk works."""

from __future__ import annotations

import os
from itertools import takewhile
from pathlib import Path

from ottla.broker.storage.checkpoint import sync_directory
from ottla.broker.storage.file_slice import OpenFile
from ottla.broker.storage.log import Log


class FlushError(OSError):
    """The disk did not take what was written. The kernel may have dropped it: a second try would wrongly succeed."""


def flush(log: Log) -> int:
    """Force everything that the log holds at this moment to disk; return the offset up to which that is.

    Two flushes of one log must not run at once: the system reports a failure to one of them only.
    """
    with log.lock:
        end, cuts, active = log.log_end_offset, log.cuts, log.active
        unsynced = list(takewhile(lambda segment: segment.synced_size != segment.size, reversed(log.segments)))
        sizes = [segment.size for segment in unsynced]
        files = [segment.file for segment in unsynced]
        # Closed segments: after a power loss their indexes are believed, so they must be on disk with the data.
        indexes = [path for segment in unsynced if segment is not active for path in segment.paths[1:]]
        has_new_names = any(segment.synced_size < 0 for segment in unsynced)
    for file in files:
        _sync(file)
    for path in indexes:
        sync_path(path)
    if has_new_names:
        sync_directory(log.directory)
    with log.lock:
        # After a cut, offsets below `end` may belong to batches that came too late for this flush.
        if log.cuts == cuts:
            log.recovery_point = max(log.recovery_point, end)
            for segment, size in zip(unsynced, sizes, strict=True):
                # One that was rolled meanwhile has new indexes.
                if segment is not active or segment is log.active:
                    segment.synced_size = size
        log.last_flush_ms = log.clock()
    return end


def is_flush_due(log: Log, now_ms: int) -> bool:
    """Whether `flush.messages`, `flush.ms` or a rolled segment asks for a flush."""
    config = log.config
    unflushed = log.log_end_offset - log.recovery_point
    return unflushed > 0 and (
        log.recovery_point < log.active.base_offset
        or log.is_flush_wanted
        or now_ms - log.last_flush_ms >= config.flush_ms
    )


def sync_path(path: Path) -> None:
    """Force a file to disk, if it is there."""
    try:
        file = OpenFile(path)
    except FileNotFoundError:
        # No aborted transactions, or the segment was deleted meanwhile.
        return
    _sync(file)


def _sync(file: OpenFile) -> None:
    try:
        if hasattr(os, "fdatasync"):
            os.fdatasync(file.fd)
        else:
            os.fsync(file.fd)
    except OSError as error:
        raise FlushError(error.errno, error.strerror) from error
