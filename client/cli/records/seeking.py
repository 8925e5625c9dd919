"""Plan and commit the offsets of `group seek`."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ottla.client.admin.admin import Admin
from ottla.client.admin.results import OffsetSpec, Result
from ottla.client.cli.records.offsets import partitions_of, wanted_offsets
from ottla.client.cli.terminal.errors import CommandError
from ottla.client.errors.kafka_error import KafkaError
from ottla.protocol.identifiers import TopicPartition

_FILE_BYTES_MAX: Final = 64 << 20
# Under which names a file may have the offset: ours, and those of `ottla group lag` and `ottla group seek`.
_OFFSET_NAMES: Final = ("offset", "current_offset", "after")


@dataclass(frozen=True, slots=True)
class OffsetChange(Result):
    """A partition with its committed offset before (None if there was none) and after.

    `wanted` is the offset that was asked for. The partition may not have it, and then the nearest one is committed.
    """

    topic: str
    partition: int
    before: int | None
    after: int
    wanted: int
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a group is to go: to one place in every partition, by a number of records, or to given offsets."""

    to: str | None = None
    by: int | None = None
    offsets: Mapping[TopicPartition, int] | None = None

    def __str__(self) -> str:
        if self.to is not None:
            return f"to {self.to}"
        return "to the offsets in the file" if self.by is None else f"by {self.by:+} records"


async def planned(
    admin: Admin, group: str, topics: Sequence[str] | None, partitions: Sequence[int] | None, destination: Destination
) -> list[OffsetChange]:
    """Return the steps for these topics, or for all topics with committed offsets."""
    committed = {
        TopicPartition(each.topic, each.partition): each.offset for each in await admin.list_group_offsets(group)
    }
    if destination.offsets is not None:
        wanted = [each for each in destination.offsets if _is_chosen(each, topics, partitions)]
    elif topics:
        wanted = [each for topic in topics for each in await partitions_of(admin, topic, partitions)]
    else:
        wanted = [each for each in committed if not partitions or each.partition in partitions]
    if not wanted:
        raise CommandError(f"{group} has no committed offsets yet: name a topic with --topic.")
    offsets = await _targets(admin, wanted, committed, destination)
    starts = await admin.list_offsets(dict.fromkeys(wanted, OffsetSpec.EARLIEST))
    ends = await admin.list_offsets(dict.fromkeys(wanted, OffsetSpec.LATEST))
    return [
        OffsetChange(
            *each, committed.get(each), min(max(offsets[each], start.offset), end.offset), wanted=offsets[each]
        )
        for each, start, end in zip(wanted, starts, ends, strict=True)
    ]


def _is_chosen(each: TopicPartition, topics: Sequence[str] | None, partitions: Sequence[int] | None) -> bool:
    return (not topics or each.topic in topics) and (not partitions or each.partition in partitions)


async def _targets(
    admin: Admin, wanted: Sequence[TopicPartition], committed: Mapping[TopicPartition, int], destination: Destination
) -> Mapping[TopicPartition, int]:
    if destination.offsets is not None:
        return destination.offsets
    if destination.by is None:
        return await wanted_offsets(admin, wanted, destination.to or "")
    if missing := [each for each in wanted if each not in committed]:
        raise CommandError(f"The group has no committed offset in {missing[0]}, so it cannot be moved from there.")
    return {each: committed[each] + destination.by for each in wanted}


def offsets_in(file: Path) -> dict[TopicPartition, int]:
    """Read offsets by partition; CommandError if the file has none.

    A line is `topic,partition,offset`, as kafka-consumer-groups exports them, or a JSON object with these names.
    """
    try:
        text = sys.stdin.read(_FILE_BYTES_MAX) if str(file) == "-" else _read(file)
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"Cannot read {file}: {error}.") from error
    found: dict[TopicPartition, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            partition, offset = _row(line)
        except (ValueError, KeyError, TypeError, StopIteration):
            raise CommandError(
                f"{file}, line {number}: {line[:60]!r} is neither topic,partition,offset nor an object with them.", 2
            ) from None
        found[partition] = offset
    if not found:
        raise CommandError(f"{file} has no offsets.", 2)
    return found


def _read(file: Path) -> str:
    with file.open(encoding="utf-8") as opened:
        return opened.read(_FILE_BYTES_MAX)


def _row(line: str) -> tuple[TopicPartition, int]:
    if line.lstrip().startswith("{"):
        item = json.loads(line)
        offset = next(item[name] for name in _OFFSET_NAMES if item.get(name) is not None)
        return TopicPartition(str(item["topic"]), int(item["partition"])), int(offset)
    topic, partition, text = next(csv.reader([line]))
    return TopicPartition(topic.strip(), int(partition)), int(text)


async def sought(admin: Admin, group: str, steps: Sequence[OffsetChange]) -> list[OffsetChange]:
    """Commit the steps; return them with their errors."""
    offsets = {TopicPartition(step.topic, step.partition): step.after for step in steps}
    outcomes = await admin.alter_group_offsets(group, offsets, raise_errors=False)
    errors = {(each.topic, each.partition): each.error for each in outcomes}
    return [replace(step, error=errors.get((step.topic, step.partition))) for step in steps]
