"""`ottla status`: the processes of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ottla.client.cli.terminal.nouns import noun_app
from ottla.client.cli.terminal.options import DirectoryOption, FormatOption, default_directory
from ottla.client.cli.terminal.output import Format, print_items, print_table

if TYPE_CHECKING:
    from ottla.client.local_cluster.status import ProcessStatus

app = noun_app("status")

_HEADINGS = ("ROLE", "ID", "PID", "ADDRESS", "HTTP", "STATE", "LEADS", "UNDER-REPLICATED", "CONTROLLER")
# What a narrow terminal does without, the first one first.
_SPARE = ("HTTP", "CONTROLLER", "UNDER-REPLICATED", "LEADS")
_STYLES = {
    "running": "green",
    "starting": "yellow",
    "stopping": "yellow",
    "stopped": "dim",
    "died": "bold red",
}


@app.function()
def status(directory: DirectoryOption = None, output_format: FormatOption = Format.TABLE) -> None:
    """Show the processes of a cluster; exits with 1 unless all are running.

    For each broker, shows how many partitions it leads, and how many of those are under-replicated.

    JSON: role, id, host, port, http_port, state, pid, leaders, under_replicated, is_controller.

    \b
    Examples:
      ottla status
      ottla status --dir /tmp/cluster --format json
    """
    import msgspec

    from ottla.client.local_cluster.cluster_dir import ClusterDir
    from ottla.client.local_cluster.local_cluster import LocalCluster
    from ottla.client.local_cluster.status import ProcessState

    statuses = LocalCluster(ClusterDir(directory or default_directory())).statuses()
    if output_format.is_data:
        print_items(msgspec.to_builtins(statuses), output_format)
    else:
        print_statuses(statuses)
    if any(each.state is not ProcessState.RUNNING for each in statuses):
        raise click.exceptions.Exit(1)


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _http(each: ProcessStatus) -> str:
    port = each.port if each.role == "console" else each.http_port
    return f"http://{each.host}:{port}" if port else "-"


def print_statuses(statuses: list[ProcessStatus]) -> None:
    """Print the table of processes."""
    rows = [
        (
            each.role.value,
            str(each.id),
            str(each.pid or "-"),
            f"{each.host}:{each.port}",
            _http(each),
            each.state.value,
            _number(each.leaders),
            _number(each.under_replicated),
            "yes" if each.is_controller else "-",
        )
        for each in statuses
    ]
    print_table(_HEADINGS, rows, _STYLES, _SPARE)
