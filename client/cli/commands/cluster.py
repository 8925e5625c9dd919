"""`ottla cluster`: the cluster as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

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
from ottla.client.cli.terminal.function_commands import Option
from ottla.client.cli.terminal.name_completion import complete_broker
from ottla.client.cli.terminal.nouns import noun_app
from ottla.client.cli.terminal.options import (
    DirectoryOption,
    FormatOption,
    YesOption,
    default_directory,
    directory_arguments,
)
from ottla.client.cli.terminal.output import Format, echo, print_items, print_table, say
from ottla.client.cli.terminal.signals import StopSignals
from ottla.client.cli.terminal.target import Target, command

if TYPE_CHECKING:
    from ottla.client.admin.admin import Admin
    from ottla.client.cli.health.health import Health
    from ottla.client.cli.health.rolling_restart import RestartedBroker
    from ottla.client.cli.plans.balancing import MeasuredCluster

app = noun_app("cluster")

# A longer list does not help the reader.
_ROWS_MAX = 20


@command(app)
def info(target: Target) -> None:
    """Show the brokers, the controller and the number of topics of the cluster.

    JSON: cluster_id, controller_id, brokers (broker_id, host, port, rack), topics, partitions.

    \b
    Examples:
      ottla cluster info
      ottla cluster info -b broker1:9092,broker2:9092 --format json
    """

    async def work(admin: Admin) -> dict[str, Any]:
        described = await admin.describe_cluster()
        topics = await admin.list_topics(include_internal=True)
        counts = {"topics": len(topics), "partitions": sum(topic.num_partitions for topic in topics)}
        return {**described.to_dict(), **counts}

    found = target.run(work)
    if target.is_data:
        target.print_items([found])
        return
    echo(f"cluster id:  {found['cluster_id'] or '-'}")
    echo(f"controller:  {'none' if found['controller_id'] is None else found['controller_id']}")
    echo(f"brokers:     {len(found['brokers'])}")
    echo(f"topics:      {found['topics']} with {found['partitions']} partitions")


@command(app)
def brokers(target: Target) -> None:
    """List the live brokers, with the number of partitions that they lead.

    JSON: broker_id, host, port, rack, is_controller, leaders, replicas, out_of_sync (its lagging replicas).

    \b
    Examples:
      ottla cluster brokers
    """

    async def work(admin: Admin) -> list[dict[str, Any]]:
        described = await admin.describe_cluster()
        partitions = [each for topic in await admin.describe_topics(raise_errors=False) for each in topic.partitions]
        return [
            {
                **broker.to_dict(),
                "is_controller": broker.broker_id == described.controller_id,
                "leaders": sum(each.leader == broker.broker_id for each in partitions),
                "replicas": sum(broker.broker_id in each.replicas for each in partitions),
                "out_of_sync": sum(
                    broker.broker_id in each.replicas and broker.broker_id not in each.isr for each in partitions
                ),
            }
            for broker in described.brokers
        ]

    items = target.run(work)
    headings = ("ID", "HOST", "PORT", "RACK", "CONTROLLER", "LEADS", "REPLICAS", "OUT-OF-SYNC")
    target.show(headings, [list(item.values()) for item in items], items, spare=("REPLICAS", "LEADS"))


@command(app)
def controller(target: Target) -> None:
    """Show which broker is the controller; exits with 1 if none is.

    JSON: broker_id, host, port, rack.

    \b
    Examples:
      ottla cluster controller
    """
    described = target.run(lambda admin: admin.describe_cluster())
    found = [each for each in described.brokers if each.broker_id == described.controller_id]
    if not found:
        raise CommandError("The cluster has no controller at the moment. If that lasts, check ZooKeeper.")
    rows = [(each.broker_id, each.host, each.port, each.rack) for each in found]
    target.show(("ID", "HOST", "PORT", "RACK"), rows, [each.to_dict() for each in found])


@command(app)
def health(target: Target) -> None:
    """Check that all partitions have a leader and all replicas in sync, and brokers ZooKeeper; exits with 1 if not.

    JSON: is_healthy, cluster_id, controller_id, brokers (ids), partitions (number), missing_brokers (ids that have
    replicas and are not alive), offline and under_replicated (each topic, partition, leader, replicas, isr),
    without_zookeeper (ids of brokers that cannot reach it).

    \b
    Examples:
      ottla cluster health
      until ottla cluster health; do sleep 1; done
    """
    from ottla.client.cli.health.health import examine_all

    found: Health = target.run(examine_all)
    if target.is_data:
        target.print_items([found.to_dict()])
    else:
        echo(f"cluster:           {'healthy' if found.is_healthy else 'unhealthy'}")
        echo(f"controller:        {'NONE' if found.controller_id is None else found.controller_id}")
        echo(f"brokers:           {', '.join(map(str, found.brokers))}")
        echo(f"missing brokers:   {', '.join(map(str, found.missing_brokers)) or 'none'}")
        echo(f"partitions:        {found.partitions}")
        echo(f"offline:           {len(found.offline)}")
        echo(f"under-replicated:  {len(found.under_replicated)}")
        if found.without_zookeeper:
            echo(f"no ZooKeeper:      {', '.join(map(str, found.without_zookeeper))} cannot reach it")
        if found.offline or found.under_replicated:
            echo()
            rows = [
                (each.topic, each.partition, each.leader, each.replicas, each.isr, state)
                for state, part in (("OFFLINE", found.offline), ("under-replicated", found.under_replicated))
                for each in part
            ]
            target.show(("TOPIC", "PARTITION", "LEADER", "REPLICAS", "ISR", "STATE"), rows[:_ROWS_MAX], ())
            if len(rows) > _ROWS_MAX:
                echo(f"... and {len(rows) - _ROWS_MAX} more; --format json shows all.")
    if not found.is_healthy:
        raise click.exceptions.Exit(1)


@command(app)
def api_versions(
    target: Target,
    broker_id: Annotated[
        int | None,
        Option(
            "--broker", metavar="ID", shell_complete=complete_broker, help="Which broker.", show_default="the first"
        ),
    ] = None,
) -> None:
    """List the APIs that a broker serves, with their versions.

    JSON: api_key, name, version_min, version_max.

    \b
    Examples:
      ottla cluster api-versions
      ottla cluster api-versions --broker 2
    """

    async def work(admin: Admin) -> Any:
        known = [each.broker_id for each in (await admin.describe_cluster()).brokers]
        if broker_id is not None and broker_id not in known:
            raise CommandError(f"There is no broker {broker_id}; the live brokers are {', '.join(map(str, known))}.")
        return await admin.api_versions(known[0] if broker_id is None else broker_id)

    found = target.run(work)
    rows = [(each.api_key, each.name, each.version_min, each.version_max) for each in found]
    target.show(("KEY", "API", "MIN", "MAX"), rows, [each.to_dict() for each in found])


@app.function()
def restart(
    rolling: Annotated[bool, Option("--rolling", help="One broker at a time, while the cluster serves.")] = False,
    directory: DirectoryOption = None,
    timeout: Annotated[
        float,
        Option(min=1, metavar="SECONDS", help="How long a broker may take to stop, to start, or to be in sync."),
    ] = 300.0,
    allow_unreplicated: Annotated[
        bool,
        Option(
            "--allow-unreplicated",
            help="Accept that partitions without a spare replica are unavailable while their broker restarts.",
        ),
    ] = False,
    from_start: Annotated[
        bool, Option("--from-start", help="Restart all brokers, even if an interrupted restart could be continued.")
    ] = False,
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Restart the brokers of a cluster that `ottla up` started, to upgrade them for example.

    A broker is stopped when all replicas are in sync and `ottla broker safe-to-stop` agrees; the next one follows when
    its replicas have caught up. The controller is last. Brokers that are not running are started first. ZooKeeper and
    the console keep running.

    If something goes wrong, the restart stops there with exit code 1, and no other broker is touched. Run the command
    again within an hour to continue it. Ctrl-C finishes the broker at hand first.

    JSON: broker_id, pid, down_s (until it was ready), in_sync_s (until all its replicas were in sync).

    \b
    Examples:
      pip install --upgrade ottla && ottla cluster restart --rolling
      ottla cluster restart --rolling --dir /tmp/cluster --timeout 600
      ottla cluster restart --rolling --allow-unreplicated      also with topics that have one replica
    """
    from ottla.client.cli.health.rolling_restart import RestartStoppedError, RollingRestart
    from ottla.client.local_cluster.cluster_dir import ClusterDir
    from ottla.client.local_cluster.local_cluster import LocalCluster

    if not rolling:
        raise CommandError("Say --rolling to restart one broker at a time. All at once: ottla down && ottla up", 2)
    with StopSignals() as signals:
        asked = False

        def hold(seconds: float) -> bool:
            """Wait, and keep Ctrl-C for later: a broker that was stopped is started again in any case."""
            nonlocal asked
            if signals.wait(seconds):
                asked = True
                say("This broker is finished first.")
            return False

        cluster = LocalCluster(
            ClusterDir(directory or default_directory()),
            report=say,
            pause=hold,
            start_timeout_s=timeout,
            stop_timeout_s=timeout,
        )
        work = RollingRestart(
            cluster,
            report=say,
            pause=lambda seconds: asked or signals.wait(seconds),
            timeout_s=timeout,
            allow_unreplicated=allow_unreplicated,
        )
        try:
            work.run(continued=not from_start)
        except RestartStoppedError as stopped:
            allowed = " --allow-unreplicated" if allow_unreplicated else ""
            again = f"ottla cluster restart --rolling{directory_arguments(directory)}{allowed}"
            raise CommandError(f"{stopped}\nTo continue, run again: {again}", stopped.exit_code) from stopped
    _show_restarted(work.restarted, output_format)


def _show_restarted(brokers: list[RestartedBroker], output_format: Format) -> None:
    import dataclasses

    if output_format.is_data:
        print_items([dataclasses.asdict(each) for each in brokers], output_format)
        return
    rows = [(str(each.broker_id), str(each.pid), f"{each.down_s:.1f}", f"{each.in_sync_s:.1f}") for each in brokers]
    print_table(("BROKER", "PID", "DOWN-S", "IN-SYNC-S"), rows, {})


@command(app)
def balance(
    target: Target,
    dry_run: DryRunOption = False,
    throttle: ThrottleOption = None,
    moves: MovesOption = MOVES_DEFAULT,
    detach: DetachOption = False,
    status: Annotated[bool, Option("--status", help="Show the moves that are not done, and change nothing.")] = False,
    cancel: Annotated[bool, Option("--cancel", help="Take back the moves that are not done.")] = False,
    yes: YesOption = False,
) -> None:
    """Even out leaders, replicas, bytes and traffic of the brokers, with as few bytes copied as possible.

    First it measures the cluster for two seconds and shows the plan. Leaders move first, which copies nothing. Replicas
    stay in different racks, and partitions keep their number of replicas all the time. The controller carries out the
    plan, a few partitions at a time, so the moves go on after Ctrl-C, and when the controller changes.

    With `ottla.balance=auto` the controller does the same by itself: `ottla config set broker all ottla.balance=auto`.

    JSON: is_dry_run, copied_bytes, copied_replicas, leader_changes, moves (topic, partition, replicas, target,
    copied_bytes), brokers (broker_id, before and after: leaders, replicas, size_bytes, bytes_per_second,
    leader_bytes_per_second). With --status: topic, partition, state (copying or waiting), replicas, target, adding,
    removing, total_bytes, copied_bytes.

    \b
    Examples:
      ottla cluster balance --dry-run
      ottla cluster balance --throttle 20MiB
      ottla cluster balance --status
      ottla cluster balance --cancel
    """
    from ottla.balance.planner import NotEnoughBrokersError, plan
    from ottla.client.cli.plans.balance_run import cancel_moves, carry_out, counted, show_plan, show_status
    from ottla.client.cli.plans.balancing import measured

    if status and cancel:
        raise CommandError("Give --status or --cancel, not both.", 2)
    if status:
        show_status(target)
        return
    if cancel:
        cancel_moves(target, yes=yes)
        return
    cluster: MeasuredCluster = target.run(lambda admin: measured(admin, LOOK_SECONDS))
    try:
        made = plan(cluster.load)
    except NotEnoughBrokersError as error:
        raise CommandError(f"There is no plan: {error}. Add a broker first.") from error
    show_plan(target, made, is_dry_run=dry_run)
    if not made.moves and not cluster.moving:
        say("The brokers are balanced.")
        return
    if not dry_run:
        carry_out(
            target,
            cluster,
            made,
            question=f"Move {counted(len(made.moves), 'partition')}?"
            if made.moves
            else "Wait for the moves under way?",
            throttle=throttle,
            moves=moves,
            is_detached=detach,
            yes=yes,
        )
