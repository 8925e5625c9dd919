"""`ottla broker`: one broker of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import click

from ottla.client.cli.plans.balance_options import (
    LOOK_SECONDS,
    MOVES_DEFAULT,
    DetachOption,
    DryRunOption,
    MovesOption,
    ThrottleOption,
)
from ottla.client.cli.terminal.errors import CommandError
from ottla.client.cli.terminal.function_commands import Argument, Option
from ottla.client.cli.terminal.name_completion import complete_broker
from ottla.client.cli.terminal.nouns import noun_app
from ottla.client.cli.terminal.options import YesOption
from ottla.client.cli.terminal.output import echo, say
from ottla.client.cli.terminal.target import Target, command

if TYPE_CHECKING:
    from ottla.client.admin.admin import Admin
    from ottla.client.cli.health.safe_to_stop import SafeToStop
    from ottla.client.cli.plans.balancing import MeasuredCluster

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


@command(app)
def drain(
    target: Target,
    broker_id: Annotated[int, Argument(metavar="ID", shell_complete=complete_broker, help="The broker to empty.")],
    dry_run: DryRunOption = False,
    throttle: ThrottleOption = None,
    moves: MovesOption = MOVES_DEFAULT,
    detach: DetachOption = False,
    undo: Annotated[bool, Option("--undo", help="Stop, and let the broker get replicas again.")] = False,
    yes: YesOption = False,
) -> None:
    """Empty a broker: its leaders move at once, then its replicas, a few at a time.

    It gets no new replicas until `--undo`. A broker that is dead for good can be drained as well: its replicas are
    copied from the others. Partitions keep their number of replicas all the time. `ottla cluster balance --status`
    shows the moves, also after Ctrl-C or `--detach`.

    JSON: is_dry_run, copied_bytes, copied_replicas, leader_changes, moves (topic, partition, replicas, target,
    copied_bytes), brokers (broker_id, before and after: leaders, replicas, size_bytes, bytes_per_second,
    leader_bytes_per_second).

    \b
    Examples:
      ottla broker drain 3 --dry-run
      ottla broker drain 3 --throttle 20MiB
      ottla broker drain 3 --undo
    """
    if undo:
        _undo(target, broker_id, yes=yes)
        return
    from msgspec.structs import replace

    from ottla.balance.planner import NotEnoughBrokersError, plan
    from ottla.client.cli.plans.balance_run import carry_out, show_plan
    from ottla.client.cli.plans.balancing import measured, set_drained

    cluster: MeasuredCluster = target.run(lambda admin: measured(admin, LOOK_SECONDS))
    load = replace(cluster.load, drained=cluster.load.drained | {broker_id})
    _check_known(cluster, broker_id)
    if not cluster.is_ottla:
        raise CommandError(
            "The controller of this cluster does not know drained brokers, and would place new replicas there. "
            "`ottla partition reassign` moves topics to other brokers."
        )
    try:
        made = plan(load, even_out=False)
    except NotEnoughBrokersError as error:
        raise CommandError(f"Broker {broker_id} cannot be drained: {error}. Add a broker first.") from error
    show_plan(target, made, is_dry_run=dry_run)
    if dry_run:
        return

    def close() -> None:
        target.change(lambda admin: set_drained(admin, broker_id, is_drained=True))

    carry_out(
        target,
        cluster,
        made,
        question=f"Move everything off broker {broker_id}?",
        before=close,
        throttle=throttle,
        moves=moves,
        is_detached=detach,
        yes=yes,
    )
    if not detach:
        say(f"Broker {broker_id} gets no new replicas until `ottla broker drain {broker_id} --undo`.")


def _undo(target: Target, broker_id: int, *, yes: bool) -> None:
    from ottla.client.cli.plans.balance_run import cancel_moves
    from ottla.client.cli.plans.balancing import drained_brokers, set_drained

    async def drained(admin: Admin) -> list[int]:
        controller_id = (await admin.describe_cluster()).controller_id
        return await drained_brokers(admin, controller_id) or []

    if broker_id not in target.run(drained):
        raise CommandError(f"Broker {broker_id} is not drained.")
    target.change(lambda admin: set_drained(admin, broker_id, is_drained=False))
    cancel_moves(target, yes=yes, away_from=broker_id)
    say(f"Broker {broker_id} may get replicas again; `ottla cluster balance` moves some there.")


def _check_known(cluster: MeasuredCluster, broker_id: int) -> None:
    load = cluster.load
    if broker_id in load.racks or any(broker_id in each.replicas for each in load.partitions.values()):
        return
    live = ", ".join(map(str, sorted(load.racks)))
    raise CommandError(f"There is no broker {broker_id}; the live brokers are {live}.")
