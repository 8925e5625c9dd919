"""`format("ottla-log")`: the files of logs as tables, without a broker.

The option `path` names a data directory, one of its TOPIC-PARTITION directories, or a copy of either. All whole batches
are read, also those that no follower has yet, and those of transactions that are open or were aborted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ottla.pipeline.sources.errors import CorruptLogError, SourceOptionError
from ottla.pipeline.sources.log_files import (
    OFFSET_MAX,
    SegmentPiece,
    find_partitions,
    log_start_offsets,
    pieces,
    segments,
    task_loads,
)
from ottla.pipeline.sources.offset_bounds import Bound, End, SpecificOffsets
from ottla.pipeline.sources.options import ReadOptions, parse_count, parse_read_options
from ottla.pipeline.sources.rows import RowMaker, Rows, check_schema, row_schema
from ottla.pipeline.sources.segment_reader import SegmentReader
from ottla.protocol.errors import CorruptBatchError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.list_offsets import LATEST

# What Spark gives a task of other files, too.
_TASK_BYTES: Final = 128 * 1024 * 1024
_TASK_BYTES_MIN: Final = 8 * 1024 * 1024
_TASKS_PER_PROCESSOR: Final = 4
_SUBSCRIPTIONS: Final = ("subscribe", "subscribepattern", "assign")


@dataclass(frozen=True, slots=True)
class LogSourceOptions:
    """Where the files are, and what to read of them."""

    path: str
    read: ReadOptions
    # Whether topics are named; all but internal ones otherwise.
    is_subscribed: bool
    task_bytes: int


class LogPartition(InputPartition):
    """The work of one task."""

    def __init__(self, work: list[SegmentPiece]) -> None:
        super().__init__(work)
        self.work = work


class LogSource(DataSource):
    """What Spark makes for each use of the format."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "ottla-log"

    def schema(self) -> StructType:
        """Return the schema of the rows."""
        return row_schema(parse_log_options(self.options).read.include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads a batch."""
        options = parse_log_options(self.options)
        check_schema(schema, options.read.include_headers)
        return LogReader(options)


class LogReader(DataSourceReader):
    """Plans by segment on the driver, and reads in the workers."""

    def __init__(self, options: LogSourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Return the work of each task."""
        options = self._options
        total = sum(piece.size for piece in planned(options, OFFSET_MAX))
        # Several tasks for each processor, so that the last one does not run alone for long; none too small to pay.
        share = total // (_TASKS_PER_PROCESSOR * (os.cpu_count() or 1))
        task_bytes = min(options.task_bytes, max(_TASK_BYTES_MIN, share))
        if options.read.min_partitions is not None:
            task_bytes = max(1, min(task_bytes, total // options.read.min_partitions))
        return [LogPartition(load) for load in task_loads(planned(options, task_bytes), task_bytes)]

    def read(self, partition: InputPartition) -> Iterator[Rows]:
        """Yield the rows of a task as Arrow record batches."""
        for piece in partition.work if isinstance(partition, LogPartition) else ():
            yield from read_piece(piece, self._options.read)


def parse_log_options(options: Mapping[str, str]) -> LogSourceOptions:
    """Read the options; SourceOptionError where they cannot work."""
    given = {name.lower(): value for name, value in options.items()}
    if not given.get("path", "").strip():
        raise SourceOptionError('The option path is missing: load("/var/lib/ottla/data"), for example.')
    is_subscribed = any(name in given for name in _SUBSCRIPTIONS)
    read = parse_read_options(given if is_subscribed else {**given, "subscribePattern": ".*"}, streaming=False)
    for side, bound in (("starting", read.starting), ("ending", read.ending)):
        if not isinstance(bound, End | SpecificOffsets):
            raise SourceOptionError(f"Files are not searched by time: remove the {side} time, and filter by timestamp.")
    return LogSourceOptions(given["path"], read, is_subscribed, parse_count(given, "maxPartitionBytes") or _TASK_BYTES)


def planned(options: LogSourceOptions, piece_bytes: int) -> Iterator[SegmentPiece]:
    """Yield all pieces that the query reads, each of about `piece_bytes` at most."""
    matches = options.read.subscription.matches if options.is_subscribed else None
    for partition, folder in sorted(find_partitions(options.path, matches).items()):
        begins = log_start_offsets(folder.resolve().parent)
        begin = max(_offset(options.read.starting, partition, "startingOffsets"), begins.get(partition, 0))
        end = _offset(options.read.ending, partition, "endingOffsets")
        yield from pieces(segments(partition, Path(folder)), begin, end, piece_bytes)


def read_piece(piece: SegmentPiece, options: ReadOptions) -> Iterator[Rows]:
    """Yield the rows of a piece."""
    maker = RowMaker(piece.segment.partition, options.include_headers)
    for batches in SegmentReader(piece, fail_on_data_loss=options.fail_on_data_loss):
        try:
            yield from maker.rows(batches, piece.begin_offset, piece.end_offset)
        except CorruptBatchError as error:
            raise CorruptLogError(f"{piece.segment.path}, from offset {batches[0].base_offset} on: {error}") from error


def _offset(bound: Bound, partition: TopicPartition, name: str) -> int:
    """Return the offset that an option names; the ends of the log where it does not."""
    if isinstance(bound, End):
        return OFFSET_MAX if bound.offset == LATEST else 0
    assert isinstance(bound, SpecificOffsets)
    if partition not in bound.offsets:
        raise SourceOptionError(
            f"{name} lacks partition {partition}: name them all. Use -2 for earliest and -1 for latest."
        )
    offset = bound.offsets[partition]
    return offset if offset >= 0 else OFFSET_MAX if offset == LATEST else 0
