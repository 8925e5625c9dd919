"""Check a segment for damage: every batch, every record, and its indexes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from ottla.client.admin.results import Result
from ottla.client.cli.records.segment_files import (
    INDEX,
    OFFSET_ENTRY_BYTES,
    TIME_ENTRY_BYTES,
    TIME_INDEX,
    DamagedFileError,
    base_offset,
    batches_in,
    offset_entries,
    time_entries,
)
from ottla.client.cli.terminal.errors import CommandError
from ottla.protocol.errors import CorruptBatchError
from ottla.protocol.records import RecordBatch


@dataclass(frozen=True, slots=True)
class SegmentProblem(Result):
    """A problem, and the position of its first byte in the file."""

    file: str
    position: int
    problem: str


@dataclass(frozen=True, slots=True)
class SegmentReport(Result):
    """What a segment contains; offsets are None if it has no batch. Unused bytes are zeros at its end."""

    file: str
    size_bytes: int
    batches: int
    records: int
    first_offset: int | None
    last_offset: int | None
    unused_bytes: int
    problems: tuple[SegmentProblem, ...]


def verified_if_present(path: Path) -> SegmentReport | None:
    """Return the report of a segment, or None if a running broker has deleted it since it was listed."""
    try:
        return verified(path)
    except (CommandError, FileNotFoundError):
        if path.exists():
            raise
        return None


def verified(path: Path) -> SegmentReport:
    """Read a segment to its end or to its first bad byte, and check its indexes."""
    problems: list[SegmentProblem] = []
    # The first offset of the batch at each position.
    starts: dict[int, int] = {}
    records = end = 0
    first = last = None
    next_offset = base_offset(path)
    try:
        for position, batch in batches_in(path):
            if batch.base_offset < next_offset:
                raise DamagedFileError(position, f"offset {batch.base_offset}, but at least {next_offset} was expected")
            records += _record_count(position, batch)
            starts[position] = batch.base_offset
            first = batch.base_offset if first is None else first
            last = batch.last_offset
            next_offset = batch.next_offset
            end = position + batch.size
    except DamagedFileError as damage:
        problems.append(SegmentProblem(str(path), damage.position, damage.problem))
    is_whole = not problems
    size = path.stat().st_size
    unused = size - end if is_whole else 0
    for suffix, check in ((INDEX, _check_index), (TIME_INDEX, _check_time_index)):
        index = path.with_suffix(suffix)
        if index.exists():
            try:
                check(index, starts, last, is_whole=is_whole)
            except DamagedFileError as damage:
                problems.append(SegmentProblem(str(index), damage.position, damage.problem))
    return SegmentReport(str(path), size, len(starts), records, first, last, unused, tuple(problems))


def _record_count(position: int, batch: RecordBatch) -> int:
    before = batch.base_offset - 1
    count = 0
    try:
        for record in batch.records():
            if not before < record.offset <= batch.last_offset:
                raise CorruptBatchError(f"record {record.offset} after {before}, up to {batch.last_offset}")
            before = record.offset
            count += 1
    except CorruptBatchError as error:
        raise DamagedFileError(position, f"in the batch at offset {batch.base_offset}: {error}") from error
    return count


def _check_index(path: Path, starts: dict[int, int], last: int | None, *, is_whole: bool) -> None:
    entries = offset_entries(path)
    for number, (before, after) in enumerate(pairwise(entries), 1):
        if after[0] <= before[0] or after[1] <= before[1]:
            raise DamagedFileError(number * OFFSET_ENTRY_BYTES, f"entry {after} is not above the one before, {before}")
    for number, (offset, position) in enumerate(entries):
        if position in starts and starts[position] <= offset and last is not None and offset <= last:
            continue
        # Behind the damage in a .log file there is nothing to compare with.
        if is_whole:
            raise DamagedFileError(
                number * OFFSET_ENTRY_BYTES, f"offset {offset} at position {position}, where no batch with it starts"
            )


def _check_time_index(path: Path, starts: dict[int, int], last: int | None, *, is_whole: bool) -> None:
    entries = time_entries(path)
    for number, (before, after) in enumerate(pairwise(entries), 1):
        if after[0] < before[0] or after[1] < before[1]:
            raise DamagedFileError(number * TIME_ENTRY_BYTES, f"entry {after} is not above the one before, {before}")
    for number, (_, offset) in enumerate(entries):
        if is_whole and (last is None or offset > last):
            raise DamagedFileError(number * TIME_ENTRY_BYTES, f"offset {offset}, which the segment does not have")
