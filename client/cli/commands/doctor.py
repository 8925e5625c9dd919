"""`ottla doctor`: common problems of a new setup, looked for from the user's host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import click

from ottla.client.cli.terminal.errors import CommandError
from ottla.client.cli.terminal.function_commands import Option
from ottla.client.cli.terminal.nouns import noun_app
from ottla.client.cli.terminal.options import DirectoryOption, default_directory
from ottla.client.cli.terminal.output import echo
from ottla.client.cli.terminal.target import Target, command, run

if TYPE_CHECKING:
    from ottla.client.cli.health.findings import Finding

app = noun_app("doctor")

# An address that does not answer within this time is useless to clients too.
_DIAL_MS_MAX = 3_000


@command(app)
def doctor(
    target: Target,
    zookeeper: Annotated[
        str | None,
        Option(metavar="HOST:PORT,...", help="Address of ZooKeeper.", show_default="from the brokers' options"),
    ] = None,
    directory: DirectoryOption = None,
) -> None:
    """Find out why clients cannot connect: try the bootstrap servers and the advertised addresses, then the cluster.

    Cluster checks cover the controller, replicas, ZooKeeper, transactions that hold back consumers, and the clocks and
    disks of brokers. A clock is compared only if this host can reach the HTTP port of the broker.

    Exits with 0 if all is well, 1 with warnings, 2 if something is broken.

    JSON: status (ok, WARNING, BROKEN), check, found, advice, change (the line to write).

    \b
    Examples:
      ottla doctor
      ottla doctor -b broker1.example.com:9092 -X security.protocol=SSL
      ottla doctor --zookeeper zookeeper1:2181,zookeeper2:2181,zookeeper3:2181
    """
    from ottla.client.cli.health.diagnosis import diagnose
    from ottla.client.cli.health.findings import Finding, Status
    from ottla.client.errors import KafkaConfigurationError, KafkaError
    from ottla.client.net.settings import ClientSettings

    kwargs = target.settings(ClientSettings)
    kwargs["connect_timeout_ms"] = min(kwargs["connect_timeout_ms"], _DIAL_MS_MAX)
    try:
        settings = ClientSettings.from_kwargs(kwargs)
    except KafkaConfigurationError as error:
        raise CommandError(str(error), 2) from error

    async def work() -> list[Finding]:
        findings = []
        try:
            async for finding in diagnose(settings, directory or default_directory(), zookeeper):
                findings.append(finding)
        except KafkaError as error:
            findings.append(Finding(Status.BROKEN, "cluster", str(error)))
        return findings

    findings = run(work)
    rows = [(each.status, each.check, each.found) for each in findings]
    target.show(("STATUS", "CHECK", "FOUND"), rows, [each.to_dict() for each in findings])
    if not target.is_data:
        _tell_changes(findings)
    found = {each.status for each in findings}
    if code := 2 if Status.BROKEN in found else int(Status.WARNING in found):
        raise click.exceptions.Exit(code)


def _tell_changes(findings: list[Finding]) -> None:
    for number, finding in enumerate((each for each in findings if each.advice), 1):
        echo(f"\n{number}. {finding.check}: {finding.advice}")
        if finding.change:
            echo(f"   {finding.change}")
