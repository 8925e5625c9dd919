"""What `group seek` would commit, and committing it."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.client.admin import Admin
from ottla.client.admin_results import PartitionOutcome
from ottla.client.cli.errors import CommandError
from ottla.client.cli.offsets import partitions_of, resolve
from ottla.protocol.identifiers import TopicPartition

# A partition, what is committed for it (None for nothing), and what would be.
Step = tuple[TopicPartition, int | None, int]


async def planned(
    admin: Admin, group: str, topics: Sequence[str] | None, partitions: Sequence[int] | None, to: str
) -> list[Step]:
    """Return the steps: of these topics, or of all that the group has committed."""
    committed = {
        TopicPartition(each.topic, each.partition): each.offset for each in await admin.list_group_offsets(group)
    }
    if topics:
        wanted = [each for topic in topics for each in await partitions_of(admin, topic, partitions)]
    else:
        wanted = [each for each in committed if not partitions or each.partition in partitions]
    if not wanted:
        raise CommandError(f"{group} has committed nothing yet: say which topic it is to read, with --topic.")
    offsets = await resolve(admin, wanted, to)
    return [(each, committed.get(each), offsets[each]) for each in wanted]


async def sought(admin: Admin, group: str, steps: Sequence[Step]) -> tuple[PartitionOutcome, ...]:
    """Commit the steps."""
    return await admin.alter_group_offsets(group, {each: after for each, _, after in steps}, raise_errors=False)
