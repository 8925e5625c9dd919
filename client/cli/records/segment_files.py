"""Read segment files from disk. Ours and Kafka's have the same layout:

    00000000000000000042.log        record batches, one after the other; the name is the first offset it may have
    00000000000000000042.index      int32 offset minus 42, int32 position in the .log; sparse, both counting up
    00000000000000000042.timeindex  int64 timestamp, int32 offset minus 42; sparse, both counting up

A file that is in use, or was not closed cleanly, may end in zeros: space for the next batches or entries.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from ottla.client.cli.terminal.errors import CommandError
from ottla.protocol.errors import CorruptBatchError
from ottla.protocol.records import BATCH_HEADER_BYTES, BATCH_LENGTH_OVERHEAD, RecordBatch

LOG: Final = ".log"
INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
_NAME_DIGITS: Final = 20
_LENGTH: Final = struct.Struct(">i")
_LENGTH_POSITION: Final = 8
_CHUNK_BYTES: Final = 1 << 20
_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")
OFFSET_ENTRY_BYTES: Final = _OFFSET_ENTRY.size
TIME_ENTRY_BYTES: Final = _TIME_ENTRY.size


class PlacedBatch(NamedTuple):
    """A batch and where it begins in its file."""

    position: int
    batch: RecordBatch


class DamagedFileError(Exception):
    """A file is damaged from a position on."""

    def __init__(self, position: int, problem: str) -> None:
        super().__init__(problem)
        self.position = position
        self.problem = problem


def base_offset(path: Path) -> int:
    """Return the offset in a file's name; CommandError if there is none."""
    if len(path.stem) != _NAME_DIGITS or not (path.stem.isascii() and path.stem.isdigit()):
        raise CommandError(f"{path} is not a segment file: their names are an offset of {_NAME_DIGITS} digits.")
    return int(path.stem)


def segments_in(path: Path) -> list[Path]:
    """Return the .log files at or below a path, sorted; CommandError if there are none."""
    if path.is_dir():
        found = sorted(each for each in path.rglob(f"*{LOG}") if len(each.stem) == _NAME_DIGITS)
        if not found:
            raise CommandError(f"There are no segments in {path}.")
        return found
    if not path.exists():
        raise CommandError(f"There is no {path}.")
    if path.suffix != LOG:
        raise CommandError(f"{path} is not a {LOG} file.")
    base_offset(path)
    return [path]


def batches_in(path: Path) -> Iterator[PlacedBatch]:
    """Read the batches of a .log file; DamagedFileError if the next one is incomplete or fails its check."""
    with _opened(path) as file:
        size = path.stat().st_size
        position = 0
        while position < size:
            header = file.read(BATCH_HEADER_BYTES)
            if not any(header) and _is_zero(file):
                return
            batch = _batch(file, header, position, size - position)
            yield PlacedBatch(position, batch)
            position += batch.size


def _is_zero(file: BinaryIO) -> bool:
    """Whether the rest of the file is zeros."""
    while chunk := file.read(_CHUNK_BYTES):
        if any(chunk):
            return False
    return True


def _batch(file: BinaryIO, header: bytes, position: int, left: int) -> RecordBatch:
    if len(header) < BATCH_HEADER_BYTES:
        raise DamagedFileError(
            position, f"the file ends {len(header)} bytes into a batch header of {BATCH_HEADER_BYTES}"
        )
    if not any(header):
        raise DamagedFileError(position, "zeros instead of a batch, and then other bytes")
    size = _LENGTH.unpack_from(header, _LENGTH_POSITION)[0] + BATCH_LENGTH_OVERHEAD
    if size < BATCH_HEADER_BYTES:
        raise DamagedFileError(position + _LENGTH_POSITION, f"a batch of {size} bytes is shorter than its header")
    if size > left:
        raise DamagedFileError(position, f"the file ends {left} bytes into a batch of {size}")
    try:
        batch = RecordBatch(header + file.read(size - BATCH_HEADER_BYTES))
        batch.check()
    except CorruptBatchError as error:
        raise DamagedFileError(position, str(error)) from error
    return batch


def offset_entries(path: Path) -> list[tuple[int, int]]:
    """Return offsets and positions of an .index file."""
    base = base_offset(path)
    return [(base + relative, position) for relative, position in _entries(path, _OFFSET_ENTRY)]


def time_entries(path: Path) -> list[tuple[int, int]]:
    """Return timestamps and offsets of a .timeindex file."""
    base = base_offset(path)
    return [(timestamp, base + relative) for timestamp, relative in _entries(path, _TIME_ENTRY)]


def _entries(path: Path, entry: struct.Struct) -> list[tuple[int, int]]:
    with _opened(path) as file:
        data = file.read()
    if len(data) % entry.size:
        raise DamagedFileError(len(data) // entry.size * entry.size, f"the file ends within an entry of {entry.size}")
    # The index of an active segment has room for a million entries, all zeros.
    used = -(-len(data.rstrip(b"\0")) // entry.size) * entry.size
    return list(entry.iter_unpack(memoryview(data)[:used]))


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise CommandError(f"Cannot read {path}: {error.strerror}.") from error
