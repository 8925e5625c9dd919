"""Files of logs for tests, made of batches of a few records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ottla.pipeline.sources.log_source import LogReader, parse_log_options
from ottla.protocol.compression import Codec
from ottla.protocol.record_batch_builder import RecordBatchBuilder

TIME_MS = 1_767_225_600_000


def made_batch(base_offset: int, count: int = 3, codec: Codec = Codec.NONE, size: int = 10, **options: Any) -> bytes:
    """Return a batch whose records say which they are."""
    builder = RecordBatchBuilder()
    for delta in range(count):
        offset = base_offset + delta
        key = None if offset % 2 else b"k%d" % offset
        builder.append(TIME_MS + offset, key, (b"v%d " % offset).ljust(size, b"."), ())
    return bytes(builder.build(base_offset=base_offset, codec=codec, **options))


def write_segment(folder: Path, base_offset: int, batches: Iterable[bytes]) -> Path:
    """Write a segment of a log."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{base_offset:020}.log"
    path.write_bytes(b"".join(batches))
    return path


def read_rows(path: Path, **options: str) -> list[dict[str, Any]]:
    """Return all rows that a query would give, in the order of its tasks."""
    reader = LogReader(parse_log_options({"path": str(path), **options}))
    return [row for partition in reader.partitions() for rows in reader.read(partition) for row in rows.to_pylist()]


def read_offsets(path: Path, **options: str) -> list[int]:
    """Return the offsets of all rows."""
    return [row["offset"] for row in read_rows(path, **options)]


def values(rows: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    """The values of rows."""
    return (row["value"] for row in rows)
