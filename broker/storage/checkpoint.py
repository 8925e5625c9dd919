"""Kafka's text checkpoints: offsets per partition, or per leader epoch, that survive a restart.

    0                       version
    2                       number of rows
    orders 0 1500           topic partition offset   (leader-epoch-checkpoint: epoch start-offset)
    orders 1 980

Every line ends in a newline, and numbers have only one spelling, so a file that was cut anywhere is noticed. A file is
replaced as a whole: after a crash it has either the old rows or the new ones.

Nothing here is thread-safe: two writers of one file need a lock around them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from ottla.broker.common.topic_names import topic_name_problem
from ottla.broker.storage.errors import CorruptCheckpointError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.primitives import INT32_MAX, INT64_MAX

RECOVERY_POINT_CHECKPOINT: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT: Final = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT: Final = "replication-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT: Final = "cleaner-offset-checkpoint"
LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"

# More than the rows of 200,000 partitions with the longest names; no honest file is larger.
CHECKPOINT_BYTES_MAX: Final = 64 * 1024 * 1024

_VERSION: Final = "0"
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,18}")


def write_atomically(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Replace the file by one that holds `data`, through `<name>.tmp` and a rename.

    The data is synced before the rename, so that no crash leaves a broken file. With `durable` the rename is synced
    too; without, a crash of the machine may bring the old file back.
    """
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        # Free the space on a full disk.
        with suppress(OSError):
            temporary.unlink()
        raise
    if durable:
        sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Force the names in a directory to disk: before that, a rename or an unlink is not durable."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_offsets(path: Path, offsets: Mapping[TopicPartition, int]) -> None:
    """Write an offset per partition."""
    rows = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    write_atomically(path, _file_of(rows))


def read_offsets(path: Path) -> dict[TopicPartition, int]:
    """Return the offset of each partition in the file; empty if there is no file."""
    offsets: dict[TopicPartition, int] = {}
    for line, row in _rows(path):
        columns = row.split(" ")
        if len(columns) != 3 or topic_name_problem(columns[0]) is not None:
            raise _corrupt(path, line, f"{row!r} is not a topic, a partition and an offset")
        partition = TopicPartition(columns[0], _number(path, line, columns[1], INT32_MAX))
        if partition in offsets:
            raise _corrupt(path, line, f"{partition} occurs twice")
        offsets[partition] = _number(path, line, columns[2], INT64_MAX)
    return offsets


def write_epochs(path: Path, entries: Iterable[tuple[int, int]], *, durable: bool = True) -> None:
    """Write (leader epoch, start offset) rows, both rising."""
    write_atomically(path, _file_of([f"{epoch} {start_offset}" for epoch, start_offset in entries]), durable=durable)


def read_epochs(path: Path) -> list[tuple[int, int]]:
    """Return the (leader epoch, start offset) rows of the file; empty if there is no file."""
    entries: list[tuple[int, int]] = []
    last_epoch = last_start_offset = -1
    for line, row in _rows(path):
        columns = row.split(" ")
        if len(columns) != 2:
            raise _corrupt(path, line, f"{row!r} is not an epoch and a start offset")
        epoch = _number(path, line, columns[0], INT32_MAX)
        start_offset = _number(path, line, columns[1], INT64_MAX)
        if epoch <= last_epoch or start_offset <= last_start_offset:
            raise _corrupt(path, line, f"{row!r} does not rise above {last_epoch} {last_start_offset}")
        entries.append((epoch, start_offset))
        last_epoch, last_start_offset = epoch, start_offset
    return entries


def _file_of(rows: list[str]) -> bytes:
    return "\n".join([_VERSION, str(len(rows)), *rows, ""]).encode("ascii")


def _rows(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the rows with their line numbers, after checking version and count."""
    try:
        with open(path, "rb") as file:
            data = file.read(CHECKPOINT_BYTES_MAX + 1)
    except FileNotFoundError:
        return
    if len(data) > CHECKPOINT_BYTES_MAX:
        raise _corrupt(path, 1, f"more than {CHECKPOINT_BYTES_MAX} bytes")
    try:
        text = data.decode("ascii")
    except UnicodeDecodeError as error:
        raise _corrupt(path, data.count(b"\n", 0, error.start) + 1, "not ASCII") from error
    lines = text.split("\n")
    if lines.pop() != "":
        raise _corrupt(path, len(lines) + 1, "the last line does not end in a newline")
    if not lines or lines[0] != _VERSION:
        raise _corrupt(path, 1, f"version {_VERSION} expected")
    if len(lines) < 2:
        raise _corrupt(path, 2, "the number of rows is missing")
    count = _number(path, 2, lines[1], INT32_MAX)
    if count != len(lines) - 2:
        raise _corrupt(path, 2, f"{count} rows expected, {len(lines) - 2} found")
    yield from enumerate(lines[2:], start=3)


def _number(path: Path, line: int, text: str, limit: int) -> int:
    if _NUMBER.fullmatch(text) is None or int(text) > limit:
        raise _corrupt(path, line, f"{text!r} is not a number from 0 to {limit}")
    return int(text)


def _corrupt(path: Path, line: int, reason: str) -> CorruptCheckpointError:
    return CorruptCheckpointError(f"{path}, line {line}: {reason}")
