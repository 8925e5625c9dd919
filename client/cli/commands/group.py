"""`ottla group`: consumer groups."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ottla.client.cli.terminal.errors import CommandError
from ottla.client.cli.terminal.function_commands import Argument, Option
from ottla.client.cli.terminal.name_completion import complete_group, complete_topic
from ottla.client.cli.terminal.nouns import noun_app
from ottla.client.cli.terminal.options import YesOption
from ottla.client.cli.terminal.outcomes import show_outcomes, tell_errors
from ottla.client.cli.terminal.output import confirm, echo, print_table, say
from ottla.client.cli.terminal.target import STYLES, Target, cell, command
from ottla.client.cli.terminal.times import duration, local_time

if TYPE_CHECKING:
    from ottla.client.admin.admin import Admin
    from ottla.client.admin.group_results import GroupDescription
    from ottla.client.cli.health.lag import PartitionLag
    from ottla.protocol.identifiers import TopicPartition

app = noun_app("group")

_Group = Annotated[str, Argument(metavar="GROUP", shell_complete=complete_group, help="Name of the group.")]
# What a narrow terminal does without, the first one first.
_LAG_SPARE = ("HOST", "CLIENT-ID", "CONSUMER-ID", "LAG-TIME")
_LAG_HEADINGS = (
    "TOPIC",
    "PARTITION",
    "CURRENT-OFFSET",
    "LOG-END-OFFSET",
    "LAG",
    "CONSUMER-ID",
    "HOST",
    "CLIENT-ID",
    "LAG-TIME",
    "PROGRESS",
)


@command(app, "list")
def list_groups(
    target: Target,
    state: Annotated[
        str | None, Option("--state", metavar="STATE", help="Only groups in this state: Stable, Empty, ...")
    ] = None,
) -> None:
    """List groups.

    JSON: group_id, protocol_type, state, type, coordinator.

    \b
    Examples:
      ottla group list
      ottla group list --state Empty --format json
    """
    found = target.run(lambda admin: admin.list_groups())
    groups = [each for each in found if state is None or each.state.lower() == state.lower()]
    target.show(
        ("GROUP", "STATE", "TYPE", "PROTOCOL", "COORDINATOR"),
        [(each.group_id, each.state, each.type, each.protocol_type, each.coordinator) for each in groups],
        [each.to_dict() for each in groups],
    )


@command(app)
def describe(target: Target, group: _Group) -> None:
    """Show the state, the members and the lag of a group.

    JSON: group_id, type, state, protocol_type, assignor, coordinator, members, group_epoch, error, total_lag,
    partitions (each as in `ottla group lag`).

    \b
    Examples:
      ottla group describe billing
    """
    found, lags = _lag(target, group)
    total = sum(each.lag or 0 for each in lags)
    if target.is_data:
        target.print_items([{**found.to_dict(), "total_lag": total, "partitions": [each.to_dict() for each in lags]}])
        return
    echo(f"group:        {found.group_id}")
    echo(f"state:        {found.state}")
    echo(f"type:         {found.type}")
    echo(f"assignor:     {found.assignor or '-'}")
    echo(f"coordinator:  {found.coordinator}")
    echo(f"members:      {len(found.members)}")
    echo(f"total lag:    {total}")
    echo()
    _show_lags(target, lags)


@command(app)
def lag(target: Target, group: _Group) -> None:
    """Show the lag of a group in each partition: in records, and as the age of the first one that is not committed.

    PROGRESS tells a group that stopped from one that is slow: `caught up`, `reading` however far it is behind, or
    `stopped` if there is something to read and its offset has not moved for 30 seconds. Brokers of Apache Kafka do not
    tell when an offset has moved; there, `behind` is a lag of a partition that has a reader.

    JSON: group_id, topic, partition, current_offset, log_end_offset, lag, member_id, client_host, client_id, lag_ms,
    progress, stalled_ms.

    \b
    Examples:
      ottla group lag billing
      ottla group lag billing --format json | jq -s 'map(.lag) | add'
    """
    _show_lags(target, _lag(target, group)[1])


def _lag(target: Target, group: str) -> tuple[GroupDescription, list[PartitionLag]]:
    from ottla.client.cli.health.lag import lag_of

    return target.run(lambda admin: lag_of(admin, group, with_times=True))


def _show_lags(target: Target, lags: list[PartitionLag]) -> None:
    rows = [
        (
            each.topic,
            each.partition,
            each.current_offset,
            each.log_end_offset,
            each.lag,
            each.member_id,
            each.client_host,
            each.client_id,
            None if each.lag_ms is None else duration(each.lag_ms),
            _progress(each),
        )
        for each in lags
    ]
    target.show(_LAG_HEADINGS, rows, [each.to_dict() for each in lags], spare=_LAG_SPARE)


def _progress(lag: PartitionLag) -> str | None:
    if lag.progress == "stopped" and lag.stalled_ms:
        return f"stopped {duration(lag.stalled_ms)}"
    return None if lag.progress is None else lag.progress.replace("_", " ")


@command(app)
def members(target: Target, group: _Group) -> None:
    """List the members of a group, with their assigned partitions.

    JSON: member_id, instance_id, client_id, client_host, assignment (topic, partition), rack, member_epoch,
    subscribed_topics, target_assignment.

    \b
    Examples:
      ottla group members billing
    """
    (found,) = target.run(lambda admin: admin.describe_groups([group]))
    target.show(
        ("CONSUMER-ID", "INSTANCE-ID", "HOST", "CLIENT-ID", "PARTITIONS", "ASSIGNMENT"),
        [
            (
                each.member_id,
                each.instance_id,
                each.client_host.removeprefix("/"),
                each.client_id,
                len(each.assignment),
                each.assignment,
            )
            for each in found.members
        ],
        [each.to_dict() for each in found.members],
    )


@command(app)
def seek(
    target: Target,
    group: _Group,
    to: Annotated[
        str | None, Option("--to", metavar="OFFSET", help="start, end, N, -N before the end, or @TIME.")
    ] = None,
    by: Annotated[
        int | None, Option("--by", "--shift-by", metavar="N", help="N records further, or back if N is negative.")
    ] = None,
    from_file: Annotated[
        Path | None,
        Option(
            "--from-file",
            metavar="FILE",
            help="To the offsets in this file: lines topic,partition,offset, or JSON as `ottla group lag` prints it.",
        ),
    ] = None,
    topics: Annotated[
        list[str] | None,
        Option(
            "--topic",
            "-t",
            metavar="TOPIC",
            shell_complete=complete_topic,
            help="Only this topic.",
            show_default="all with committed offsets",
        ),
    ] = None,
    partitions: Annotated[
        list[int] | None, Option("--partition", "-p", help="Only this partition of the topics.")
    ] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Only show what would be committed.")] = False,
    yes: YesOption = False,
) -> None:
    """Set the committed offsets of a group that has no members.

    Offsets that a partition does not have, or no longer has, become the nearest one that it has, with a warning.

    JSON: topic, partition, before (null where nothing was committed), after, wanted (what was asked for), error.

    \b
    Examples:
      ottla group seek billing --to start --dry-run
      ottla group seek billing --to @2026-01-31T12:00:00Z --topic orders
      ottla group seek billing --to 1000 --topic orders --partition 0 --yes
      ottla group seek billing --by -100 --topic orders
      ottla group lag billing --format json > offsets; ottla group seek billing --from-file offsets
    """
    from ottla.client.cli.records.seeking import Destination, offsets_in, planned, sought

    if sum(each is not None for each in (to, by, from_file)) != 1:
        raise CommandError("say where to go: --to, --by or --from-file", 2)
    destination = Destination(to, by, None if from_file is None else offsets_in(from_file))
    steps = target.run(lambda admin: planned(admin, group, topics, partitions, destination))
    for step in steps:
        if step.after != step.wanted:
            where = "starts" if step.after > step.wanted else "ends"
            say(f"Warning: {step.topic}-{step.partition} {where} at {step.after}, not at {step.wanted}.")
    if not dry_run:
        confirm(f"Move {group} {destination} in {len(steps)} {'partition' if len(steps) == 1 else 'partitions'}?", yes)
        steps = target.change(lambda admin: sought(admin, group, steps))
    done = [step for step in steps if step.error is None]
    if done or target.is_data:
        target.show(
            ("TOPIC", "PARTITION", "BEFORE", "AFTER"),
            [(step.topic, step.partition, step.before, step.after) for step in done],
            [step.to_dict() for step in steps],
        )
    tell_errors(steps)


@command(app)
def delete_offsets(
    target: Target,
    group: _Group,
    topics: Annotated[
        list[str],
        Option("--topic", "-t", metavar="TOPIC", shell_complete=complete_topic, help="Topic; can be repeated."),
    ],
    partitions: Annotated[
        list[int] | None, Option("--partition", "-p", help="Only this partition of the topics; can be repeated.")
    ] = None,
    yes: YesOption = False,
) -> None:
    """Delete the committed offsets of a group in topics that none of its members reads.

    JSON: topic, partition, error.

    \b
    Examples:
      ottla group delete-offsets billing --topic orders
      ottla group delete-offsets billing --topic orders --partition 3 --yes
    """

    async def committed(admin: Admin) -> list[TopicPartition]:
        from ottla.protocol.identifiers import TopicPartition

        return [
            TopicPartition(each.topic, each.partition)
            for each in await admin.list_group_offsets(group)
            if each.topic in topics and (not partitions or each.partition in partitions)
        ]

    found = target.run(committed)
    if not found:
        raise CommandError(f"{group} has committed nothing there; `ottla group lag {group}` shows its offsets.")
    confirm(f"Delete the offsets of {group} in {len(found)} partitions?", yes)
    results = target.change(lambda admin: admin.delete_group_offsets(group, found, raise_errors=False))
    show_outcomes(target, "PARTITION", [(f"{each.topic}-{each.partition}", each) for each in results], "deleted")


@command(app)
def delete(
    target: Target,
    groups: Annotated[list[str], Argument(metavar="GROUP...", shell_complete=complete_group, help="Names of groups.")],
    yes: YesOption = False,
) -> None:
    """Delete groups that have no members, with all their committed offsets.

    JSON: group_id, error.

    \b
    Examples:
      ottla group delete billing
      ottla group delete billing shipping --yes
    """
    confirm(f"Delete {', '.join(groups)} and all committed offsets?", yes)
    results = target.change(lambda admin: admin.delete_groups(groups, raise_errors=False))
    show_outcomes(target, "GROUP", [(each.group_id, each) for each in results], "deleted")


@command(app)
def timeline(target: Target, group: _Group) -> None:
    """Show the last rebalances of a group: when, why, and how long they took.

    The data comes from the HTTP port of the coordinator, which must be an Ottla broker. Put the token of that port into
    OTTLA_HTTP_TOKEN if it requires one.

    JSON: cause, began_ms, join_ms, sync_ms, generation, members.

    \b
    Examples:
      ottla group timeline billing
    """
    from ottla.client.cli.health.timeline import rebalances

    async def work(admin: Admin) -> list[dict[str, Any]]:
        return await rebalances(admin, group)

    found = target.run(work)
    if target.is_data:
        target.print_items(found)
        return
    rows = [
        (
            local_time(each["began_ms"]),
            *(cell(each[name]) for name in ("generation", "members", "join_ms", "sync_ms", "cause")),
        )
        for each in found
    ]
    print_table(("BEGAN", "GENERATION", "MEMBERS", "JOIN-MS", "SYNC-MS", "CAUSE"), rows, STYLES)
