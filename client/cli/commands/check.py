"""`ottla check`: one line and an exit code, for monitoring.

Exit codes are those of Nagios: 0 ok, 1 warning, 2 critical, 3 unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import click

from ottla.client.cli.terminal.errors import CommandError
from ottla.client.cli.terminal.function_commands import Argument, Option
from ottla.client.cli.terminal.name_completion import complete_group, complete_topic
from ottla.client.cli.terminal.nouns import noun_app
from ottla.client.cli.terminal.output import echo
from ottla.client.cli.terminal.target import Target, command, run
from ottla.client.cli.terminal.times import duration

if TYPE_CHECKING:
    from ottla.client.admin.admin import Admin
    from ottla.client.admin.results import TopicDescription

app = noun_app("check")

_OK, _WARNING, _CRITICAL, _UNKNOWN = range(4)
_STATUSES = ("OK", "WARNING", "CRITICAL", "UNKNOWN")


def _end(target: Target, code: int, message: str) -> None:
    if target.is_data:
        target.print_items([{"status": _STATUSES[code], "exit_code": code, "message": message}])
    else:
        echo(f"{_STATUSES[code]}: {message}")
    raise click.exceptions.Exit(code)


@command(app)
def health(
    target: Target,
    local: Annotated[bool, Option("--local", help="Check only this broker: it answers and knows the cluster.")] = False,
) -> None:
    """Check the cluster. Critical: no controller, a missing leader, no ZooKeeper, no answer. Warning: lagging replicas.

    With --local, only the broker at the address is asked for its versions and its metadata; it is critical if that
    fails. So a supervisor does not restart a broker because of a problem elsewhere.

    JSON: status, exit_code, message.

    \b
    Examples:
      ottla check health
      ottla check health --local -b localhost:9092 --timeout 5
    """
    from ottla.client.cli.health.health import examine_all

    if local:
        return _local_health(target)
    try:
        found = target.run(examine_all)
    except CommandError as error:
        return _end(target, _CRITICAL, str(error).splitlines()[0])
    if found.controller_id is None:
        return _end(target, _CRITICAL, "there is no controller")
    if found.offline:
        return _end(target, _CRITICAL, f"{len(found.offline)} of {found.partitions} partitions have no leader")
    if found.without_zookeeper:
        cut_off = ", ".join(map(str, found.without_zookeeper))
        return _end(target, _CRITICAL, f"these brokers cannot reach ZooKeeper: {cut_off}")
    if found.under_replicated or found.missing_brokers:
        missing = f"; not alive: {', '.join(map(str, found.missing_brokers))}" if found.missing_brokers else ""
        weak = len(found.under_replicated)
        return _end(target, _WARNING, f"{weak} of {found.partitions} partitions are under-replicated{missing}")
    return _end(target, _OK, f"{len(found.brokers)} brokers, {found.partitions} partitions, all replicas in sync")


def _local_health(target: Target) -> None:
    from ottla.client.cli.health.one_broker import known_brokers
    from ottla.client.net.settings import ClientSettings

    settings = target.settings(ClientSettings)
    try:
        known = run(lambda: known_brokers(settings))
    except CommandError as error:
        return _end(target, _CRITICAL, str(error).splitlines()[0])
    where = settings["bootstrap_servers"]
    if not known:
        return _end(target, _CRITICAL, f"{where} answers, but has no metadata from a controller yet")
    return _end(target, _OK, f"{where} answers and knows {known} brokers")


@command(app)
def lag(
    target: Target,
    group: Annotated[str, Argument(metavar="GROUP", shell_complete=complete_group, help="Name of the group.")],
    warning: Annotated[int, Option("--warning", "-w", min=0, metavar="N", help="Warning above this lag.")] = 1_000,
    critical: Annotated[int, Option("--critical", "-c", min=0, metavar="N", help="Critical above this lag.")] = 10_000,
    warning_time: Annotated[
        str | None, Option("--warning-time", metavar="DURATION", help="Warning if a record waits longer, such as 5m.")
    ] = None,
    critical_time: Annotated[
        str | None, Option("--critical-time", metavar="DURATION", help="Critical if a record waits longer.")
    ] = None,
    stopped: Annotated[
        str | None,
        Option("--stopped", metavar="DURATION", help="Critical if records wait, and the group reads none for longer."),
    ] = None,
    needs_members: Annotated[bool, Option("--needs-members", help="Critical if the group has no members.")] = False,
) -> None:
    """Check the lag of a group, in records and in time, and whether it reads; unknown if it does not exist.

    JSON: status, exit_code, message.

    \b
    Examples:
      ottla check lag billing --warning 5000 --critical 50000
      ottla check lag billing --warning-time 1m --critical-time 10m --stopped 5m
    """
    from ottla.client.cli.health.lag import lag_of
    from ottla.client.cli.records.offsets import duration_ms

    limits_ms = [None if each is None else duration_ms(each) for each in (warning_time, critical_time, stopped)]
    try:
        found, lags = target.run(lambda admin: lag_of(admin, group, with_times=True))
    except CommandError as error:
        return _end(target, _UNKNOWN, str(error).splitlines()[0])
    total = sum(each.lag or 0 for each in lags)
    age_ms = max((each.lag_ms or 0 for each in lags), default=0)
    stalled_ms = max((each.stalled_ms or 0 for each in lags), default=0)

    def is_above(value_ms: int, limit_ms: int | None) -> bool:
        return limit_ms is not None and value_ms > limit_ms

    is_abandoned = (needs_members and not found.members) or is_above(stalled_ms, limits_ms[2])
    is_critical = total > critical or is_above(age_ms, limits_ms[1]) or is_abandoned
    is_warning = total > warning or is_above(age_ms, limits_ms[0])
    stops = sum(each.progress == "stopped" for each in lags)
    message = f"{group} is {total} records behind, {found.state}, {len(found.members)} members"
    if total:
        message += f"; the oldest record waits for {duration(age_ms)}"
    if stops:
        message += f", stopped in {stops} of {len(lags)} partitions"
    return _end(target, _CRITICAL if is_critical else _WARNING if is_warning else _OK, message)


@command(app)
def topic(
    target: Target,
    topic: Annotated[str, Argument(metavar="TOPIC", shell_complete=complete_topic, help="Name of the topic.")],
) -> None:
    """Check a topic: critical if it is missing, or has no leader or too few replicas for acks=all.

    A missing replica is a warning while there are still enough of them.

    JSON: status, exit_code, message.

    \b
    Examples:
      ottla check topic orders
    """
    from ottla.client.admin.results import ConfigResource
    from ottla.protocol.config_resources import ConfigResourceType

    async def work(admin: Admin) -> tuple[TopicDescription, int]:
        (described,) = await admin.describe_topics([topic], raise_errors=False)
        if described.error is not None:
            return described, 0
        (configs,) = await admin.describe_configs(
            [ConfigResource(ConfigResourceType.TOPIC, topic)], names=["min.insync.replicas"]
        )
        return described, int(next((each.value for each in configs.entries if each.value), "1"))

    try:
        found, isr_min = target.run(work)
    except CommandError as error:
        return _end(target, _UNKNOWN, str(error).splitlines()[0])
    if found.error is not None:
        return _end(target, _CRITICAL, str(found.error))
    counts = {
        "without a leader": sum(each.leader is None for each in found.partitions),
        f"with fewer than {isr_min} replicas in sync": sum(each.has_too_few(isr_min) for each in found.partitions),
        "under-replicated": sum(each.is_under_replicated for each in found.partitions),
    }
    for (what, count), code in zip(counts.items(), (_CRITICAL, _CRITICAL, _WARNING), strict=True):
        if count:
            return _end(target, code, f"{topic}: {count} of {len(found.partitions)} partitions {what}")
    return _end(target, _OK, f"{topic}: {len(found.partitions)} partitions, all replicas in sync")
