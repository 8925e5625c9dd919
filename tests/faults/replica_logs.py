"""What replicas have on disk, to be compared byte by byte."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from tests.faults.checker.history import ReplicaBatch, ReplicaLog

from ottla.protocol.errors import CorruptBatchError
from ottla.protocol.records import batches


def replica_log(partition: str, broker: int, folder: Path, high_watermark: int) -> ReplicaLog:
    """Read the segments of a broker up to the high watermark; it may run, as long as nobody writes there."""
    found = tuple(batch for batch in _batches(folder) if batch.base_offset < high_watermark)
    return ReplicaLog(partition=partition, broker=broker, batches=found)


def _batches(folder: Path) -> Iterator[ReplicaBatch]:
    for segment in sorted(folder.glob("*.log")):
        try:
            for batch in batches(segment.read_bytes()):
                digest = hashlib.sha256(batch.view).hexdigest()[:16]
                yield ReplicaBatch(batch.base_offset, batch.last_offset, batch.partition_leader_epoch, digest)
        except CorruptBatchError:
            # A broker that runs or was killed has room behind the last batch, which is zeroes.
            continue
