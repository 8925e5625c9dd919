"""`ottla partition`: leaders and replicas."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click

from ottla.client.cli.terminal.errors import CommandError
from ottla.client.cli.terminal.function_commands import Argument, CommandGroup, Option
from ottla.client.cli.terminal.nouns import noun_app
from ottla.client.cli.terminal.options import YesOption
from ottla.client.cli.terminal.outcomes import show_outcomes
from ottla.client.cli.terminal.output import confirm, echo, say
from ottla.client.cli.terminal.target import Target, command

if TYPE_CHECKING:
    from ottla.client.admin.admin import Admin
    from ottla.protocol.identifiers import TopicPartition

app = noun_app("partition")
reassign = CommandGroup("reassign", "Move partitions to other brokers: plan, execute, verify, cancel.")
app.add_command(reassign)

_Topics = Annotated[
    list[str] | None, Option("--topic", "-t", metavar="TOPIC", help="Only this topic.", show_default="all")
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

    JSON: topic, partition, error.

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

    found = target.run(work)
    if not found and not target.is_data:
        say("All partitions already have the right leader.")
    show_outcomes(target, "PARTITION", [(f"{each.topic}-{each.partition}", each) for each in found], "elected")


@command(reassign)
def plan(
    target: Target,
    topics: Annotated[list[str], Option("--topic", "-t", metavar="TOPIC", help="Topic to move.")],
    brokers: Annotated[str, Option("--brokers", metavar="ID,ID,...", help="Brokers that may hold the replicas.")],
    replication_factor: Annotated[
        int | None, Option("--replication-factor", "-r", min=1, metavar="N", show_default="unchanged")
    ] = None,
) -> None:
    """Print a plan that spreads topics over brokers. This moves nothing yet.

    The plan is always JSON: version, partitions (topic, partition, replicas).

    \b
    Examples:
      ottla partition reassign plan --topic orders --brokers 2,3,4 > plan.json
      ottla partition reassign plan --topic orders --brokers 1,2,3 --replication-factor 3 > plan.json
    """
    from ottla.client.cli.plans.reassigning import plan_text, spread

    ids = _ids(brokers)

    async def work(admin: Admin) -> Any:
        alive = {each.broker_id for each in (await admin.describe_cluster()).brokers}
        if missing := [each for each in ids if each not in alive]:
            raise CommandError(f"These brokers are not alive: {', '.join(map(str, missing))}.")
        return await admin.describe_topics(topics)

    echo(plan_text(spread(target.run(work), ids, replication_factor)))


@command(reassign)
def execute(target: Target, file: _File, yes: YesOption = False) -> None:
    """Start to move partitions according to a plan. `verify` shows whether the move is done.

    JSON: topic, partition, error.

    \b
    Examples:
      ottla partition reassign execute plan.json
    """
    wanted = _plan(file)
    confirm(f"Move {len(wanted)} partitions?", yes)
    found = target.run(lambda admin: admin.alter_partition_reassignments(wanted, raise_errors=False))
    show_outcomes(target, "PARTITION", [(f"{each.topic}-{each.partition}", each) for each in found], "moving")


@command(reassign)
def verify(target: Target, file: _File) -> None:
    """Show the progress of a plan; exits with 1 unless all partitions have moved.

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


@command(reassign)
def cancel(target: Target, file: _File, yes: YesOption = False) -> None:
    """Cancel the moves of a plan, and return to the previous replicas.

    JSON: topic, partition, error.

    \b
    Examples:
      ottla partition reassign cancel plan.json
    """
    wanted = _plan(file)
    confirm(f"Cancel the move of {len(wanted)} partitions?", yes)
    found = target.run(lambda admin: admin.alter_partition_reassignments(dict.fromkeys(wanted), raise_errors=False))
    show_outcomes(target, "PARTITION", [(f"{each.topic}-{each.partition}", each) for each in found], "cancelled")


def _ids(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts) or len(set(parts)) < len(parts):
        raise CommandError(f"--brokers takes ids such as 1,2,3, not {text!r}.", 2)
    return [int(part) for part in parts]


def _plan(file: Path) -> dict[TopicPartition, list[int]]:
    from ottla.client.cli.plans.reassigning import parse_plan

    try:
        text = click.get_text_stream("stdin").read() if str(file) == "-" else file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"Cannot read {file}: {error}.") from error
    return parse_plan(text, str(file))
