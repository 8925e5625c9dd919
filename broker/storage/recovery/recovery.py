"""Opening a log after a clean or an unclean stop, and closing it.

After a clean stop the files are trusted: names and sizes give the segments, and only the tail of the last one is read.
After an unclean stop every segment that reaches past the recovery point is read batch by batch. The log is cut at the
first batch that is torn, damaged or out of order, and everything behind it is removed (recovery_scan.py). Indexes,
leader epochs and producers' state are rebuilt from the batches.

    *.deleted, *.cleaned, *.tmp   left by an interrupted deletion, cleaning or write: removed
    *.swap                        a complete cleaning that was being put in place: put in place (compaction/swap.py)
"""

from __future__ import annotations

import os
import re
import threading
from bisect import bisect_right
from itertools import pairwise
from pathlib import Path

from ottla.broker.config import TopicConfig
from ottla.broker.storage.checkpoint import LEADER_EPOCH_CHECKPOINT
from ottla.broker.storage.compaction.swap import SWAP_SUFFIX, finish_swaps
from ottla.broker.storage.directory_files import may_have_holes as was_compacted
from ottla.broker.storage.errors import CorruptCheckpointError, StorageError
from ottla.broker.storage.leader_epochs import LeaderEpochs
from ottla.broker.storage.log import Clock, Log, LogParts
from ottla.broker.storage.open_files import OpenFiles, sync_path
from ottla.broker.storage.producers.producer_replay import replay_from_snapshot, replay_scanned
from ottla.broker.storage.producers.producer_snapshot import (
    StoredProducers,
    delete_snapshots_above,
    delete_snapshots_below,
    write_snapshot,
)
from ottla.broker.storage.producers.producers import Producers
from ottla.broker.storage.recovery.recovery_scan import RecoveryScan
from ottla.broker.storage.segment import CORRUPT, Limits, Segment
from ottla.broker.storage.segment_file import NO_LIMIT, BatchAt
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.records import NO_LEADER_EPOCH

_SEGMENT_NAME = re.compile(r"([0-9]{20})\.(log|index|timeindex|txnindex)")
_LEFTOVER_SUFFIXES = (".deleted", ".cleaned", ".tmp")


def open_log(
    directory: Path,
    partition: TopicPartition,
    config: TopicConfig,
    files: OpenFiles,
    clock: Clock,
    *,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    was_clean: bool = False,
) -> Log:
    """Open the log of a partition, or create an empty one."""
    directory.mkdir(parents=True, exist_ok=True)
    lock = threading.Lock()
    limits = Limits(config.segment_bytes, config.index_interval_bytes, config.segment_index_bytes)
    may_have_holes = "compact" in config.cleanup_policy or was_compacted(directory)
    # Keeps other threads from releasing the files that are being read.
    with lock:
        names = _tidy(directory, may_have_holes=may_have_holes)
        segments = [Segment(directory, base_offset, limits, files, lock) for base_offset in names]
        epochs, is_known = _load_epochs(directory)
        scanned = len(segments)
        # Everything was flushed: a log that ends elsewhere has changed since.
        was_clean = was_clean and is_known and _resume(segments, recovery_point) and _agree(segments, epochs)
        if not was_clean:
            scanned = _recover(segments, epochs, recovery_point, is_known=is_known, may_have_holes=may_have_holes)
        end = segments[-1].next_offset if segments else log_start_offset
        if not segments or end < log_start_offset:
            for segment in segments:
                segment.remove()
            segments = [Segment.create(directory, log_start_offset, limits, files, lock)]
            scanned, end = 1, log_start_offset
            epochs.clear()
            # The snapshots do not cover the lost batches.
            delete_snapshots_above(directory, -1)
        log_start_offset = max(log_start_offset, segments[0].base_offset)
        epochs.truncate_from_end(end)
        epochs.truncate_from_start(log_start_offset)
        if epochs.entries and epochs.entries[0][1] > log_start_offset:
            _lower_first_epoch(epochs, segments, log_start_offset)
        producers = Producers()
        delete_snapshots_above(directory, end)
        if scanned < len(segments):
            replay_scanned(directory, producers, segments, scanned)
        else:
            replay_from_snapshot(directory, producers, segments)
        delete_snapshots_below(directory, segments[0].base_offset)
        if was_clean:
            # A start opens thousands of logs, and only few of them are used soon.
            for segment in segments:
                segment.close_files()
        flushed = end if was_clean else min(recovery_point, end)
        parts = LogParts(segments, epochs, producers, log_start_offset, flushed)
        return Log(directory, partition, config, files, clock, lock, parts)


def close_log(log: Log) -> None:
    """Force everything to disk, and close the files so that a clean start need not look into them."""
    with log.lock:
        log.active.finish()
        # Even without producers: a start must see the difference between no producers and a lost snapshot.
        write_snapshot(log.directory, StoredProducers(log.log_end_offset, log.producers.entries()), durable=False)
    log.flush()
    with log.lock:
        for path in log.active.paths[1:]:
            sync_path(path)
        for segment in log.segments:
            segment.close_files()


def _tidy(directory: Path, *, may_have_holes: bool) -> list[int]:
    """Clean up after interrupted operations; return the base offsets of the segments."""
    if any(name.endswith(SWAP_SUFFIX) for name in os.listdir(directory)):
        finish_swaps(directory)
    logs: list[int] = []
    others: list[tuple[int, Path]] = []
    for path in directory.iterdir():
        match = _SEGMENT_NAME.fullmatch(path.name)
        if path.name.endswith(_LEFTOVER_SUFFIXES):
            path.unlink()
        elif match is not None:
            base_offset = int(match[1])
            if base_offset >= NO_LIMIT:
                raise StorageError(f"{path}: offsets cannot be that large")
            if match[2] == "log":
                logs.append(base_offset)
            else:
                others.append((base_offset, path))
    logs.sort()
    for base_offset, path in others:
        if base_offset not in logs:
            # Segments are deleted from the start and cut from the end. An index in between has lost its log otherwise.
            if not may_have_holes and logs and logs[0] < base_offset < logs[-1]:
                raise StorageError(f"{path.with_suffix('.log')} is missing, which leaves a hole in the log")
            path.unlink()
    return logs


def _load_epochs(directory: Path) -> tuple[LeaderEpochs, bool]:
    """Return the leader epochs, and whether the file could be read."""
    path = directory / LEADER_EPOCH_CHECKPOINT
    try:
        return LeaderEpochs.load(path), True
    except CorruptCheckpointError:
        path.unlink()
        return LeaderEpochs(path), False


def _resume(segments: list[Segment], end: int) -> bool:
    """Open segments as a clean stop left them; False if they are in another state, or do not end at `end`."""
    for segment, following in pairwise(segments):
        segment.trust(following.base_offset)
    return not segments or (segments[-1].resume() and segments[-1].next_offset == end)


def _find(segments: list[Segment], offset: int) -> BatchAt | None:
    """Return the batch that holds an offset, or the next one in the same segment."""
    return segments[bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1].find(offset)


def _lower_first_epoch(epochs: LeaderEpochs, segments: list[Segment], begin: int) -> None:
    """Move the start of the first epoch down to the first batch, if that batch has this epoch."""
    first_epoch, start_offset = epochs.entries[0]
    batch = _find(segments, begin)
    if batch is not None and batch.leader_epoch == first_epoch and max(batch.base_offset, begin) < start_offset:
        epochs.assign_all([(first_epoch, max(batch.base_offset, begin)), *epochs.entries[1:]])


def _agree(segments: list[Segment], epochs: LeaderEpochs) -> bool:
    """Whether the batches around the start of each leader epoch, and the last batch, have the epochs of the file."""
    end = segments[-1].next_offset if segments else 0
    if not segments or end == segments[0].base_offset:
        return True
    entries = epochs.entries
    if not entries:
        return False
    begin = max(entries[0][1], segments[0].base_offset)
    probes = {offset for _, start in entries for offset in (start - 1, start)} | {end - 1}
    try:
        for offset in probes:
            batch = _find(segments, offset) if begin <= offset < end else None
            # The first entry may begin within a batch, where the log start is.
            if batch is not None and batch.leader_epoch not in (
                epochs.epoch_for(max(batch.base_offset, begin)),
                NO_LEADER_EPOCH,
            ):
                return False
    except CORRUPT:
        return False
    return True


def _recover(
    segments: list[Segment], epochs: LeaderEpochs, recovery_point: int, *, is_known: bool, may_have_holes: bool
) -> int:
    """Read every segment that reaches past the recovery point; return the index of the first one that was read.

    Without trusted epochs that is the first segment of the log: the epochs are read from the batches. Trusted epochs
    are kept as they are: after a compaction, the first batch of an epoch may lie above the start of the epoch.
    """
    first = 0
    # A segment that ends just at the recovery point may have been flushed before it was trimmed and indexed.
    while first + 1 < len(segments) and segments[first + 1].base_offset < recovery_point:
        segments[first].trust(segments[first + 1].base_offset)
        first += 1
    if not is_known or not epochs.entries or not _agree(segments[:first], epochs):
        is_known = False
        first = 0
    if segments:
        believed = epochs if is_known else None
        scan = RecoveryScan(segments, believed, recovery_point, may_have_holes=may_have_holes)
        scan.run(first)
        if not is_known or scan.contradicts_epochs:
            epochs.truncate_from_end(segments[first].base_offset if is_known else 0)
            epochs.assign_all(scan.found)
    return first
