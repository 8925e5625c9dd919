"""`ottla partition`: leaders and replicas."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click

from ottla.client.cli.terminal.errors import CommandError
from ottla.client.cli.terminal.function_commands import Argument, CommandGroup, Option
from ottla.client.cli.terminal.name_completion import complete_broker, complete_topic
from ottla.client.cli.terminal.nouns import noun_app
from ottla.client.cli.terminal.options import YesOption
from ottla.client.cli.terminal.outcomes import show_outcomes, tell_errors
from ottla.client.cli.terminal.output import confirm, echo, say
from ottla.client.cli.terminal.sizes import read_bytes
from ottla.client.cli.terminal.target import Target, command

if TYPE_CHECKING:
    from ottla.client.admin.admin import Admin
    from ottla.protocol.identifiers import TopicPartition

app = noun_app("partition")
reassign = CommandGroup("reassign", "Move partitions to other brokers: plan, execute, verify, cancel.")
app.add_command(reassign)

_Topics = Annotated[
    list[str] | None,
    Option(
        "--topic", "-t", metavar="TOPIC", shell_complete=complete_topic, help="Only this topic.", show_default="all"
    ),
]
_File = Annotated[
    Path, Argument(metavar="FILE", help="A plan, in the format of kafka-reassign-partitions; - is stdin.")
]


@command(app)
def leaders(
    target: Target,
    topics: _Topics = None,
    not_preferred: Annotated[
        bool, Option("--not-preferred", help="Only partitions whose leader is not the preferred (first) replica.")
    ] = False,
) -> None:
    """Show the current and the preferred leader of each partition.

    JSON: topic, partition, leader, preferred, replicas, isr.

    \b
    Examples:
      ottla partition leaders --not-preferred
      ottla partition leaders --topic orders
    """
    described = target.run(lambda admin: admin.describe_topics(topics or None))
    items = [
        {
            "topic": topic.name,
            "partition": each.partition,
            "leader": each.leader,
            "preferred": each.replicas[0] if each.replicas else None,
            "replicas": list(each.replicas),
            "isr": list(each.isr),
        }
        for topic in described
        for each in topic.partitions
    ]
    items = [item for item in items if not (not_preferred and item["leader"] == item["preferred"])]
    headings = ("TOPIC", "PARTITION", "LEADER", "PREFERRED", "REPLICAS", "ISR")
    target.show(headings, [list(item.values()) for item in items], items)


@command(app)
def elect(
    target: Target,
    topics: _Topics = None,
    unclean: Annotated[
        bool, Option("--unclean", help="Where there is no leader, elect any live replica. RECORDS MAY BE LOST.")
    ] = False,
    yes: YesOption = False,
) -> None:
    """Make the first replica of each partition its leader again.

    JSON: topic, partition, is_elected (false if it already had the right leader), error.

    \b
    Examples:
      ottla partition elect
      ottla partition elect --topic orders --unclean
    """
    if unclean:
        confirm("Elect leaders that may lack acknowledged records?", yes)

    async def work(admin: Admin) -> Any:
        from ottla.protocol.identifiers import TopicPartition

        partitions = None
        if topics:
            described = await admin.describe_topics(topics)
            partitions = [
                TopicPartition(topic.name, each.partition) for topic in described for each in topic.partitions
            ]
        kind: Any = "unclean" if unclean else "preferred"
        return await admin.elect_leaders(partitions, election_type=kind, raise_errors=False)

    found = target.change(work)
    if not target.is_data and not any(each.is_elected or each.error for each in found):
        say("All partitions already have the right leader.")
    rows = [
        (f"{each.topic}-{each.partition}", "elected" if each.is_elected else "not needed")
        for each in found
        if each.error is None
    ]
    if rows or target.is_data:
        target.show(("PARTITION", "STATUS"), rows, [each.to_dict() for each in found])
    tell_errors(found)


@command(reassign)
def plan(
    target: Target,
    topics: Annotated[
        list[str], Option("--topic", "-t", metavar="TOPIC", shell_complete=complete_topic, help="Topic to move.")
    ],
    brokers: Annotated[
        str,
        Option(
            "--brokers", metavar="ID,ID,...", shell_complete=complete_broker, help="Brokers that may hold the replicas."
        ),
    ],
    replication_factor: Annotated[
        int | None, Option("--replication-factor", "-r", min=1, metavar="N", show_default="unchanged")
    ] = None,
) -> None:
    """Print a plan that spreads topics over brokers, and replicas over racks. This moves nothing yet.

    The plan is always JSON: version, partitions (topic, partition, replicas).

    \b
    Examples:
      ottla partition reassign plan --topic orders --brokers 2,3,4 > plan.json
      ottla partition reassign plan --topic orders --brokers 1,2,3 --replication-factor 3 > plan.json
    """
    from ottla.client.cli.plans.reassigning import plan_text, spread

    ids = _ids(brokers)

    async def work(admin: Admin) -> Any:
        racks = {each.broker_id: each.rack for each in (await admin.describe_cluster()).brokers}
        if missing := [each for each in ids if each not in racks]:
            raise CommandError(f"These brokers are not alive: {', '.join(map(str, missing))}.")
        return spread(await admin.describe_topics(topics), ids, replication_factor, racks)

    echo(plan_text(target.run(work)))


@command(reassign)
def execute(
    target: Target,
    file: _File,
    throttle: Annotated[
        str | None,
        Option("--throttle", metavar="BYTES", help="Move no faster than this per second and broker, such as 10MiB."),
    ] = None,
    rollback: Annotated[
        Path | None,
        Option(
            "--rollback",
            metavar="FILE",
            help="Where to write the plan that undoes this one.",
            show_default="the plan's name with .rollback.json",
        ),
    ] = None,
    yes: YesOption = False,
) -> None:
    """Start to move partitions according to a plan. `verify` shows whether the move is done.

    First, a plan that leads back to where the partitions are now is written to a file. A throttle stays until `verify`
    finds that all is done, or until `cancel`.

    JSON: topic, partition, error.

    \b
    Examples:
      ottla partition reassign execute plan.json
      ottla partition reassign execute plan.json --throttle 10MiB
      ottla partition reassign execute plan.json.rollback.json      back again
    """
    from ottla.client.cli.plans.reassigning import plan_text, replicas_now
    from ottla.client.cli.plans.throttling import throttles

    wanted = _plan(file)
    rate = None if throttle is None else read_bytes(throttle, "--throttle")
    now = target.run(lambda admin: replicas_now(admin, wanted))
    confirm(f"Move {len(wanted)} partitions?", yes)
    _keep(plan_text(now), rollback, file)

    async def work(admin: Admin) -> Any:
        if rate is not None:
            await admin.alter_configs(throttles(now, wanted, rate))
        return await admin.alter_partition_reassignments(wanted, raise_errors=False)

    found = target.change(work)
    show_outcomes(target, "PARTITION", [(f"{each.topic}-{each.partition}", each) for each in found], "moving")


def _keep(plan: str, rollback: Path | None, file: Path) -> None:
    """Write the plan that leads back; one that is there already is kept, because it may lead further back."""
    if rollback is None and str(file) == "-":
        say(f"The plan that leads back:\n{plan}")
        return
    path = rollback or file.with_name(f"{file.name}.rollback.json")
    try:
        with path.open("x") as opened:
            opened.write(f"{plan}\n")
    except FileExistsError:
        say(f"{path} exists, and is kept. Write the plan that leads back elsewhere with --rollback FILE.")
    except OSError as error:
        raise CommandError(f"Cannot write the plan that leads back to {path}: {error.strerror}.") from error
    else:
        say(f"The plan that leads back is in {path}.")


@command(reassign)
def verify(
    target: Target,
    file: _File,
    keep_throttle: Annotated[bool, Option("--keep-throttle", help="Leave the throttle when all is done.")] = False,
) -> None:
    """Show the progress of a plan; exits with 1 unless all partitions have moved.

    If all have, the throttle of `execute` is removed.

    JSON: topic, partition, state (done, moving or elsewhere), wanted, replicas.

    \b
    Examples:
      ottla partition reassign verify plan.json
    """
    from ottla.client.cli.plans.reassigning import progress

    wanted = _plan(file)
    items = target.run(lambda admin: progress(admin, wanted))
    headings = ("TOPIC", "PARTITION", "STATE", "WANTED", "REPLICAS")
    target.show(headings, [list(item.values()) for item in items], items)
    if any(item["state"] != "done" for item in items):
        raise click.exceptions.Exit(1)
    if not keep_throttle:
        _remove_throttles(target, wanted)


@command(reassign)
def cancel(target: Target, file: _File, yes: YesOption = False) -> None:
    """Cancel the moves of a plan, and return to the previous replicas. The throttle of `execute` is removed.

    JSON: topic, partition, error.

    \b
    Examples:
      ottla partition reassign cancel plan.json
    """
    wanted = _plan(file)
    confirm(f"Cancel the move of {len(wanted)} partitions?", yes)
    found = target.change(lambda admin: admin.alter_partition_reassignments(dict.fromkeys(wanted), raise_errors=False))
    _remove_throttles(target, wanted)
    show_outcomes(target, "PARTITION", [(f"{each.topic}-{each.partition}", each) for each in found], "cancelled")


def _remove_throttles(target: Target, plan: Mapping[TopicPartition, Sequence[int]]) -> None:
    from ottla.client.cli.plans.throttling import remove_throttles

    topics = list(dict.fromkeys(each.topic for each in plan))
    if target.change(lambda admin: remove_throttles(admin, topics)):
        say("The throttle was removed.")


def _ids(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts) or len(set(parts)) < len(parts):
        raise CommandError(f"--brokers takes ids such as 1,2,3, not {text!r}.", 2)
    return [int(part) for part in parts]


def _plan(file: Path) -> dict[TopicPartition, list[int]]:
    from ottla.client.cli.plans.reassigning import parse_plan

    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"Cannot read {file}: {error}.") from error
    return parse_plan(text, str(file))
