"""`ottla down`: stop a cluster."""

from __future__ import annotations

from typing import Annotated

from ottla.client.cli.terminal.function_commands import Option
from ottla.client.cli.terminal.nouns import noun_app
from ottla.client.cli.terminal.options import DirectoryOption, default_directory
from ottla.client.cli.terminal.output import say

app = noun_app("down")


@app.function()
def down(
    directory: DirectoryOption = None,
    timeout: Annotated[
        float,
        Option(min=0, metavar="SECONDS", help="How long a clean stop may take before a process is killed."),
    ] = 30.0,
) -> None:
    """Stop a cluster that `ottla up` started; its data stays.

    \b
    Examples:
      ottla down                      the default cluster
      ottla down --dir /tmp/cluster   the one in this directory
    """
    from ottla.client.local_cluster.cluster_dir import ClusterDir
    from ottla.client.local_cluster.local_cluster import LocalCluster

    cluster = LocalCluster(ClusterDir(directory or default_directory()), report=say, stop_timeout_s=timeout)
    if not cluster.stop():
        say(f"No process of the cluster in {cluster.directory.path} was running.")
