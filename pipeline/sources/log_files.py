"""Finds the files of logs, in Kafka's layout, and divides them among tasks.

data dir/                          also a backup of one
  log-start-offset-checkpoint      what was deleted from the front, though its segment may still be there
  TOPIC-PARTITION/
    00000000000000000000.log       record batches, one behind the other; the name is the first offset
    00000000000000000000.index     sparse: int32 offset - first offset, int32 position of its batch
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from ottla.pipeline.sources.errors import SourceOptionError
from ottla.pipeline.sources.segment_index import SegmentIndex
from ottla.protocol.identifiers import TopicPartition

CHECKPOINT: Final = "log-start-offset-checkpoint"
OFFSET_MAX: Final = (1 << 63) - 1

# A topic's name, and not what Kafka makes of a directory that is being deleted or moved.
_PARTITION_DIR: Final = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})")
_SEGMENT: Final = re.compile(r"[0-9]{20}\.log")
_INTERNAL_PREFIX: Final = "__"


@dataclass(frozen=True, slots=True)
class LogSegment:
    """A file of a log, and where the next one begins; None for the last, which may end in a torn batch."""

    path: str
    partition: TopicPartition
    base_offset: int
    size: int
    next_base_offset: int | None


@dataclass(frozen=True, slots=True)
class SegmentPiece:
    """A part of a segment that one task reads: batches between two positions, records between two offsets."""

    segment: LogSegment
    begin: int
    end: int
    begin_offset: int
    end_offset: int

    @property
    def size(self) -> int:
        """How many bytes there are to read."""
        return self.end - self.begin


def find_partitions(path: str, wanted: Callable[[TopicPartition], bool] | None) -> dict[TopicPartition, Path]:
    """Return the directories of partitions in or at a path, which may be several with commas in between.

    Without `wanted` these are all but those of internal topics. SourceOptionError where there is none, or one twice.
    """
    found: dict[TopicPartition, Path] = {}
    for part in filter(None, (part.strip() for part in path.split(","))):
        for partition, folder in _directories(Path(part.removeprefix("file://").removeprefix("file:"))):
            if not (not partition.topic.startswith(_INTERNAL_PREFIX) if wanted is None else wanted(partition)):
                continue
            if partition in found:
                raise SourceOptionError(
                    f"{partition} is both in {found[partition]} and in {folder}: replicas would be read twice. "
                    "Give the data directory of one broker, or choose partitions with assign."
                )
            found[partition] = folder
    if not found:
        raise SourceOptionError(
            f"There is no log to read in {path}: the option path names a broker's data directory or one of its "
            "TOPIC-PARTITION directories, and subscribe must match."
        )
    return found


def segments(partition: TopicPartition, folder: Path) -> list[LogSegment]:
    """Return the segments of a log in order."""
    sizes = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            if _SEGMENT.fullmatch(entry.name):
                sizes[int(entry.name.removesuffix(".log"))] = entry.path, entry.stat().st_size
    bases = sorted(sizes)
    return [
        LogSegment(sizes[base][0], partition, base, sizes[base][1], following)
        for base, following in zip(bases, [*bases[1:], None], strict=True)
    ]


def log_start_offsets(folder: Path) -> dict[TopicPartition, int]:
    """Return where logs begin, as far as the checkpoint of their data directory says so; a bad line says nothing."""
    try:
        lines = (folder / CHECKPOINT).read_text(errors="replace").splitlines()[2:]
    except OSError:
        return {}
    rows = [line.split() for line in lines]
    return {
        TopicPartition(row[0], int(row[1])): int(row[2])
        for row in rows
        if len(row) == 3 and row[1].isdecimal() and row[2].isdecimal()
    }


def pieces(logs: Iterable[LogSegment], begin_offset: int, end_offset: int, bytes_max: int) -> Iterator[SegmentPiece]:
    """Divide a log between two offsets into pieces of about `bytes_max`, at boundaries of batches."""
    for segment in logs:
        last = OFFSET_MAX if segment.next_base_offset is None else segment.next_base_offset
        if last <= begin_offset or segment.base_offset >= end_offset or not segment.size:
            continue
        bounds = [0, segment.size]
        if begin_offset > segment.base_offset or segment.size > bytes_max:
            index = SegmentIndex.read(segment.path, segment.base_offset, segment.size)
            first = index.position_before(begin_offset)
            bounds = [first, *index.cuts(first, bytes_max), segment.size]
        for begin, end in pairwise(bounds):
            yield SegmentPiece(segment, begin, end, begin_offset, min(end_offset, last))


def task_loads(work: Iterable[SegmentPiece], bytes_max: int) -> list[list[SegmentPiece]]:
    """Put small pieces together, in order, so that a task has up to `bytes_max`."""
    loads: list[list[SegmentPiece]] = []
    room = 0
    for piece in work:
        if not loads or piece.size > room:
            loads.append([])
            room = bytes_max
        loads[-1].append(piece)
        room -= piece.size
    return loads


def _directories(path: Path) -> Iterator[tuple[TopicPartition, Path]]:
    try:
        names = sorted(os.listdir(path))
    except OSError as error:
        raise SourceOptionError(f"The option path cannot be read: {error}.") from error
    if any(_SEGMENT.fullmatch(name) for name in names):
        match = _PARTITION_DIR.fullmatch(path.resolve().name)
        if match is None:
            raise SourceOptionError(f"{path} has segments, but its name is not TOPIC-PARTITION: rename it so.")
        yield TopicPartition(match[1], int(match[2])), path
        return
    for name in names:
        match = _PARTITION_DIR.fullmatch(name)
        if match is not None and (path / name).is_dir():
            yield TopicPartition(match[1], int(match[2])), path / name
