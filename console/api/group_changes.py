"""Changes of groups: committed offsets, with a preview, and deletion."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from ottla.client.cli.records.seeking import Destination, planned, sought
from ottla.console.api.changes import Change, ChangeRow, command_line, raise_if_all_failed
from ottla.console.numbers import long, maybe_long
from ottla.console.problems import Problem
from ottla.console.web.call import Call


class Seek(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Where the group goes on: start, end, N, -N or @TIME; without topics, in all that it has committed."""

    to: Annotated[str, Meta(max_length=64)]
    topics: list[str] = []
    partitions: list[int] = []
    dry_run: bool = True


class GroupDeletion(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A deletion; the id is typed again."""

    confirm: str
    dry_run: bool = False


async def seek_group(call: Call, group: str, body: Seek) -> Change:
    """Show where a seek would take a group, and commit that unless it is a dry run."""
    admin = await call.admin()
    steps = await planned(admin, group, body.topics or None, body.partitions or None, Destination(body.to))
    (described,) = await admin.describe_groups([group], raise_errors=False)
    if not body.dry_run:
        steps = await sought(admin, group, steps)
        raise_if_all_failed(steps)
    arguments = ["group", "seek", group, "--to", body.to]
    for topic in body.topics:
        arguments += ["--topic", topic]
    for number in body.partitions:
        arguments += ["--partition", str(number)]
    warnings = []
    if described.members:
        warnings.append(f"The group has {len(described.members)} members: stop them first.")
    again = sum(max(0, (step.before or 0) - step.after) for step in steps)
    skipped = sum(max(0, step.after - (step.before or 0)) for step in steps if step.before is not None)
    if again:
        warnings.append(f"{again} records would be read again.")
    if skipped:
        warnings.append(f"{skipped} records would be skipped.")
    return Change(
        is_dry_run=body.dry_run,
        changes=[
            ChangeRow(
                subject=f"{step.topic}-{step.partition}",
                before=maybe_long(step.before),
                after=long(step.after),
                error=None if step.error is None else str(step.error),
            )
            for step in steps
        ],
        warnings=warnings,
        command=command_line(*arguments),
    )


async def delete_group(call: Call, group: str, body: GroupDeletion) -> Change:
    """Delete a group that has no members, with its committed offsets."""
    admin = await call.admin()
    offsets = await admin.list_group_offsets(group)
    if not body.dry_run:
        if body.confirm != group:
            raise Problem(400, "Type the id of the group", "`confirm` must be the id of the group.")
        await admin.delete_groups([group])
    return Change(
        is_dry_run=body.dry_run,
        changes=[ChangeRow(subject=group, before=f"offsets of {len(offsets)} partitions")],
        command=command_line("group", "delete", group),
    )
