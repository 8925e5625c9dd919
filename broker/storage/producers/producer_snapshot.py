"""Producer snapshots: the state of a partition's producers at an offset, so that a start need not replay the whole log.

    <20 digits>.snapshot    named by the offset that it is valid up to, exclusive

    at  size  field                         46 bytes per producer:
     0     2  version, 1                      8  producer id       8  last timestamp
     2     4  CRC-32C of bytes 6..            2  epoch             4  coordinator epoch, -1 none
     6     4  number of producers             4  last sequence     8  first offset of the open
    10        producers                       8  last offset          transaction, -1 none
                                              4  offset delta of the last batch

A snapshot has only the last batch of a producer; its last offset is -1 if there was none. Files are replaced as a
whole. A file that fails its CRC is deleted: the snapshot before it and the log give the same state.

Nothing here is thread-safe: the partition's lock protects the directory.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from ottla.broker.storage.checkpoint import write_atomically
from ottla.broker.storage.errors import CorruptSnapshotError
from ottla.protocol.checksum import crc32c

# Enough for five million producers of one partition.
SNAPSHOT_BYTES_MAX: Final = 256 * 1024 * 1024

_VERSION: Final = 1
_HEADER: Final = Struct(">hIi")
_COUNT: Final = Struct(">i")
_CRC_FROM: Final = 6
_ENTRY: Final = Struct(">qhiqiqiq")
_FILE_NAME: Final = re.compile(r"[0-9]{20}\.snapshot")


class StoredProducer(NamedTuple):
    """One producer; the fields stand in the order of the file, -1 for none."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    last_timestamp: int
    coordinator_epoch: int
    current_transaction_first_offset: int


class StoredProducers(NamedTuple):
    """The producers at `offset`: a replay continues with the batch there."""

    offset: int
    entries: Sequence[StoredProducer]


def snapshot_path(directory: Path, offset: int) -> Path:
    """Return where the snapshot of an offset is kept."""
    return directory / f"{offset:020d}.snapshot"


def write_snapshot(directory: Path, snapshot: StoredProducers, *, durable: bool = True) -> None:
    """Write a snapshot. Without `durable` it does not wait for the disk, and a crash may leave it broken."""
    body = bytearray(_COUNT.pack(len(snapshot.entries)))
    for entry in snapshot.entries:
        body += _ENTRY.pack(*entry)
    header = _HEADER.pack(_VERSION, crc32c(body), len(snapshot.entries))
    path = snapshot_path(directory, snapshot.offset)
    if durable:
        write_atomically(path, header[:_CRC_FROM] + body)
    else:
        _write(path, header[:_CRC_FROM] + body)


def read_snapshot(path: Path) -> list[StoredProducer]:
    """Return the producers in a snapshot file."""
    with open(path, "rb") as file:
        data = file.read(SNAPSHOT_BYTES_MAX + 1)
    if not _HEADER.size <= len(data) <= SNAPSHOT_BYTES_MAX:
        raise CorruptSnapshotError(f"{path}: {len(data)} bytes are too few or too many")
    version, crc, count = _HEADER.unpack_from(data)
    if version != _VERSION:
        raise CorruptSnapshotError(f"{path}: version {version} where only {_VERSION} is supported")
    view = memoryview(data)
    actual = crc32c(view[_CRC_FROM:])
    if actual != crc:
        raise CorruptSnapshotError(f"{path}: CRC {actual:08x} where the file says {crc:08x}")
    if count * _ENTRY.size != len(data) - _HEADER.size:
        raise CorruptSnapshotError(f"{path}: {count} producers do not fill {len(data) - _HEADER.size} bytes")
    return [StoredProducer(*fields) for fields in _ENTRY.iter_unpack(view[_HEADER.size :])]


def snapshot_offsets(directory: Path) -> list[int]:
    """Return the offsets of the snapshots in a directory, rising."""
    return sorted(int(name[:20]) for name in os.listdir(directory) if _FILE_NAME.fullmatch(name))


def load_newest_snapshot(directory: Path, offset: int) -> StoredProducers | None:
    """Return the newest snapshot at or below `offset` that can be read; broken ones on the way there are deleted."""
    for known in reversed(snapshot_offsets(directory)):
        if known <= offset:
            path = snapshot_path(directory, known)
            try:
                return StoredProducers(known, read_snapshot(path))
            except CorruptSnapshotError:
                path.unlink(missing_ok=True)
    return None


def delete_snapshots_below(directory: Path, offset: int) -> None:
    """Delete the snapshots of offsets below `offset`."""
    for known in snapshot_offsets(directory):
        if known < offset:
            snapshot_path(directory, known).unlink(missing_ok=True)


def delete_snapshots_above(directory: Path, offset: int) -> None:
    """Delete the snapshots of offsets above `offset`: after a truncation they refer to batches that are gone."""
    for known in snapshot_offsets(directory):
        if known > offset:
            snapshot_path(directory, known).unlink(missing_ok=True)


def _write(path: Path, data: bytes) -> None:
    """Replace a file as a whole, as other processes see it, without waiting for the disk."""
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise
