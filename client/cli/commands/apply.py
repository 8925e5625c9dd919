"""`ottla apply`: make topics match a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ottla.client.cli.terminal.function_commands import Option
from ottla.client.cli.terminal.nouns import noun_app
from ottla.client.cli.terminal.outcomes import tell_errors
from ottla.client.cli.terminal.output import say
from ottla.client.cli.terminal.target import Target, command

if TYPE_CHECKING:
    from ottla.client.admin.admin import Admin
    from ottla.client.cli.plans.topic_plan import TopicStep

app = noun_app("apply")


@command(app)
def apply(
    target: Target,
    file: Annotated[Path, Option("--file", "-f", metavar="FILE", help="File with topics: .toml, .json or .yaml.")],
    dry_run: Annotated[bool, Option("--dry-run", help="Only show what would be done.")] = False,
) -> None:
    """Create and change topics to match a file. It deletes nothing, and removes no partitions.

    The file has a list "topics", each with name, partitions, replication_factor and configs. What the file leaves out
    does not change. If one topic cannot match the file, no topic is changed.

    JSON: topic, action (create, change, nothing, refuse), changes (texts), status (done, planned, failed, -), error.

    \b
    Examples:
      ottla apply -f topics.toml --dry-run
      ottla apply -f topics.yaml
    """
    from ottla.client.cli.plans.topic_files import read_topics
    from ottla.client.cli.plans.topic_plan import Action, carry_out, plan

    wanted = read_topics(file)
    is_refused = False

    async def work(admin: Admin) -> list[TopicStep]:
        nonlocal is_refused
        steps = await plan(admin, wanted)
        is_refused = any(each.action is Action.REFUSE for each in steps)
        return steps if is_refused else await carry_out(admin, steps, wanted, validate_only=dry_run)

    steps = target.change(work)
    done = "planned" if dry_run or is_refused else "done"

    def status(each: TopicStep) -> str:
        return "failed" if each.error is not None else "-" if each.action is Action.NOTHING else done

    if target.is_data:
        keys = ("topic", "action", "changes", "error")
        target.print_items({**{key: each.to_dict()[key] for key in keys}, "status": status(each)} for each in steps)
    else:
        rows = [(each.topic, each.action, "; ".join(each.changes) or None, status(each)) for each in steps]
        target.show(("TOPIC", "ACTION", "CHANGES", "STATUS"), rows, ())
    if is_refused:
        say("Nothing was done.")
    tell_errors(steps)
