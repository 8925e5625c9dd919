"""Opening a log after a clean or an unclean stop, and closing it.

After a clean stop the files are believed: names and sizes give the segments, and only the tail of the last one is
read. After an unclean one every segment that reaches past the recovery point is read batch by batch: at the first
that is torn, damaged or out of order the log is cut, and what comes behind is removed. Indexes, leader epochs and
producers' state follow from the batches.

    *.deleted, *.cleaned, *.tmp   left from an interrupted deletion, cleaning or write: removed
    *.swap                        a finished cleaning that was being put in place: put in place (see compaction.py)
"""

from __future__ import annotations

import os
import threading
from itertools import pairwise
from pathlib import Path

from ottla.broker.config import TopicConfig
from ottla.broker.storage.errors import CorruptCheckpointError
from ottla.broker.storage.flushing import flush
from ottla.broker.storage.leader_epochs import LeaderEpochs
from ottla.broker.storage.log import Clock, Log, LogParts
from ottla.broker.storage.open_files import OpenFiles
from ottla.broker.storage.producer_snapshot import (
    ProducerSnapshot,
    delete_snapshots_above,
    snapshot_offsets,
    write_snapshot,
)
from ottla.broker.storage.producers import Producers
from ottla.broker.storage.segment import Limits, Segment
from ottla.broker.storage.swap import SWAP_SUFFIX, finish_swaps
from ottla.broker.storage.truncation import rebuild_producers
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.records import RecordBatch

LEADER_EPOCHS_FILE = "leader-epoch-checkpoint"
_INDEX_SUFFIXES = (".index", ".timeindex", ".txnindex")
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
    """Open the log of a partition, or begin an empty one."""
    lock = threading.Lock()
    limits = Limits(config.segment_bytes, config.index_interval_bytes, config.segment_index_bytes)
    base_offsets, has_snapshots = _tidy(directory)
    segments = [Segment(directory, base_offset, limits, files, lock) for base_offset in base_offsets]
    epochs, epochs_known = _load_epochs(directory)
    was_clean = was_clean and epochs_known and _resume(segments)
    if not was_clean:
        recovered = _recover(segments, epochs, recovery_point if epochs_known else 0)
        recovery_point = min(recovery_point, recovered)
    end = segments[-1].next_offset if segments else log_start_offset
    if not segments or end < log_start_offset:
        for segment in segments:
            segment.close()
            segment.unlink()
        segments = [Segment.create(directory, log_start_offset, limits, files, lock)]
        epochs.clear()
        end = log_start_offset
    epochs.truncate_from_end(end)
    log_start_offset = max(log_start_offset, segments[0].base_offset)
    if has_snapshots:
        delete_snapshots_above(directory, end)
    parts = LogParts(segments, epochs, Producers(), log_start_offset, end if was_clean else min(recovery_point, end))
    log = Log(directory, partition, config, files, clock, lock, parts)
    # A clean stop leaves a snapshot at the end, unless no producer ever wrote with an id.
    if not was_clean or has_snapshots:
        rebuild_producers(log.producers, log)
    return log


def close_log(log: Log) -> None:
    """Force everything to disk, and leave files that a clean start need not look into."""
    with log.lock:
        log.active.finish()
        if len(log.producers) or snapshot_offsets(log.directory):
            write_snapshot(log.directory, ProducerSnapshot(log.log_end_offset, log.producers.entries()))
    flush(log)
    with log.lock:
        log.active.sync()
        for segment in log.segments:
            segment.close()


def _tidy(directory: Path) -> tuple[list[int], bool]:
    """Remove what an interrupted operation left; return the base offsets of the segments, and if there are snapshots.

    The directory is made if it is missing, and is listed once: there may be ten thousand of them to open.
    """
    try:
        names = set(os.listdir(directory))
    except FileNotFoundError:
        directory.mkdir(parents=True)
        return [], False
    if any(name.endswith(SWAP_SUFFIX) for name in names):
        finish_swaps(directory)
        names = set(os.listdir(directory))
    base_offsets = []
    has_snapshots = False
    for name in names:
        stem, _, suffix = name.rpartition(".")
        if suffix == "log" and stem.isdecimal():
            base_offsets.append(int(stem))
        elif name.endswith(_LEFTOVER_SUFFIXES) or (name.endswith(_INDEX_SUFFIXES) and stem + ".log" not in names):
            (directory / name).unlink()
        has_snapshots = has_snapshots or suffix == "snapshot"
    return sorted(base_offsets), has_snapshots


def _load_epochs(directory: Path) -> tuple[LeaderEpochs, bool]:
    """Return the leader epochs, and whether the file could be read."""
    path = directory / LEADER_EPOCHS_FILE
    try:
        return LeaderEpochs.load(path), True
    except CorruptCheckpointError:
        path.unlink()
        return LeaderEpochs(path), False


def _resume(segments: list[Segment]) -> bool:
    """Take segments as a clean stop left them; False where they are not like that."""
    for segment, following in pairwise(segments):
        segment.size = segment.path.stat().st_size
        segment.next_offset = following.base_offset
    return not segments or segments[-1].resume()


def _recover(segments: list[Segment], epochs: LeaderEpochs, recovery_point: int) -> int:
    """Read every segment that reaches past the recovery point; return the offset up to which the log is good."""
    first = 0
    while first + 1 < len(segments) and segments[first + 1].base_offset <= recovery_point:
        segments[first].size = segments[first].path.stat().st_size
        segments[first].next_offset = segments[first + 1].base_offset
        first += 1
    accepted = _AcceptRisingEpochs()
    for index in range(first, len(segments)):
        segment = segments[index]
        was_whole = segment.recover(accepted)
        if index + 1 == len(segments):
            break
        following = segments[index + 1].base_offset
        # A file that was not trimmed when it was rolled is whole up to where the next one begins.
        if segment.next_offset == following or (was_whole and segment.next_offset < following):
            segment.next_offset = following
            continue
        for later in segments[index + 1 :]:
            later.unlink()
        del segments[index + 1 :]
        break
    epochs.assign_all(accepted.found)
    return segments[-1].next_offset if segments else 0


class _AcceptRisingEpochs:
    """Takes batches while their leader epochs do not fall, and notes where each epoch begins."""

    def __init__(self) -> None:
        self.found: list[tuple[int, int]] = []

    def __call__(self, batch: RecordBatch) -> bool:
        epoch = batch.partition_leader_epoch
        if not self.found or epoch > self.found[-1][0]:
            self.found.append((epoch, batch.base_offset))
        return epoch == self.found[-1][0]
