"""`ottla broker`: one broker of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import click

from ottla.client.cli.terminal.function_commands import Argument, Option
from ottla.client.cli.terminal.name_completion import complete_broker
from ottla.client.cli.terminal.nouns import noun_app
from ottla.client.cli.terminal.output import echo
from ottla.client.cli.terminal.target import Target, command

if TYPE_CHECKING:
    from ottla.client.cli.health.safe_to_stop import SafeToStop

app = noun_app("broker")


@command(app)
def safe_to_stop(
    target: Target,
    broker_id: Annotated[int, Argument(metavar="ID", shell_complete=complete_broker, help="The broker.")],
    allow_unreplicated: Annotated[
        bool,
        Option(
            "--allow-unreplicated",
            help="Accept that partitions without a spare replica are unavailable while the broker is down.",
        ),
    ] = False,
) -> None:
    """Check whether a broker can be stopped now without harm; exits with 1 if not.

    It is safe if every partition keeps a leader and enough replicas in sync for acks=all. Leaders, groups and
    transactions that the broker has move to others by themselves. Works with Apache Kafka, too.

    JSON: broker_id, is_safe, reasons (why not), notes, is_controller, unavailable, below_min_isr and leaders_to_move
    (each topic, partition), brokers_down and catching_up (ids of other brokers), groups and transactional_ids that it
    coordinates (null if unknown).

    \b
    Examples:
      ottla broker safe-to-stop 2 && systemctl restart ottla
      until ottla broker safe-to-stop 2; do sleep 5; done
    """
    from ottla.client.cli.health.safe_to_stop import ask_safe_to_stop

    found = target.run(lambda admin: ask_safe_to_stop(admin, broker_id, allow_unreplicated=allow_unreplicated))
    if target.is_data:
        target.print_items([found.to_dict()])
    else:
        _show(found)
    if not found.is_safe:
        raise click.exceptions.Exit(1)


def _show(found: SafeToStop) -> None:
    from ottla.client.cli.health.safe_to_stop import named

    def coordinated(names: tuple[str, ...] | None) -> str:
        if names is None:
            return "unknown"
        return f"{len(names)} ({named(names)})" if names else "none"

    echo(f"broker {found.broker_id}:".ljust(20) + ("safe to stop" if found.is_safe else "NOT safe to stop"))
    echo(f"leaders to move:    {len(found.leaders_to_move)}")
    echo(f"groups to move:     {coordinated(found.groups)}")
    echo(f"transactional ids:  {coordinated(found.transactional_ids)}")
    for heading, sentences in (("Why not:", found.reasons), ("Note:", found.notes)):
        if sentences:
            echo(f"\n{heading}")
        for each in sentences:
            echo(f"  {each}")
