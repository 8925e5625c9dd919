"""Plan and commit the offsets of `group seek`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ottla.client.admin.admin import Admin
from ottla.client.admin.results import Result
from ottla.client.cli.records.offsets import partitions_of, resolve
from ottla.client.cli.terminal.errors import CommandError
from ottla.client.errors.kafka_error import KafkaError
from ottla.protocol.identifiers import TopicPartition


@dataclass(frozen=True, slots=True)
class OffsetChange(Result):
    """A partition with its committed offset before (None if there was none) and after."""

    topic: str
    partition: int
    before: int | None
    after: int
    error: KafkaError | None = None


async def planned(
    admin: Admin, group: str, topics: Sequence[str] | None, partitions: Sequence[int] | None, to: str
) -> list[OffsetChange]:
    """Return the steps for these topics, or for all topics with committed offsets."""
    committed = {
        TopicPartition(each.topic, each.partition): each.offset for each in await admin.list_group_offsets(group)
    }
    if topics:
        wanted = [each for topic in topics for each in await partitions_of(admin, topic, partitions)]
    else:
        wanted = [each for each in committed if not partitions or each.partition in partitions]
    if not wanted:
        raise CommandError(f"{group} has no committed offsets yet: name a topic with --topic.")
    offsets = await resolve(admin, wanted, to)
    return [OffsetChange(*each, committed.get(each), offsets[each]) for each in wanted]


async def sought(admin: Admin, group: str, steps: Sequence[OffsetChange]) -> list[OffsetChange]:
    """Commit the steps; return them with their errors."""
    offsets = {TopicPartition(step.topic, step.partition): step.after for step in steps}
    outcomes = await admin.alter_group_offsets(group, offsets, raise_errors=False)
    errors = {(each.topic, each.partition): each.error for each in outcomes}
    return [replace(step, error=errors.get((step.topic, step.partition))) for step in steps]
