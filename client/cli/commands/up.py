"""`ottla up`: run a cluster on this machine."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from ottla.client.cli.commands.status import print_statuses
from ottla.client.cli.terminal.function_commands import Option
from ottla.client.cli.terminal.nouns import noun_app
from ottla.client.cli.terminal.options import DirectoryOption, default_directory, directory_arguments
from ottla.client.cli.terminal.output import echo, say, unread_is_fine
from ottla.client.cli.terminal.progress import progress
from ottla.client.cli.terminal.signals import StopSignals

if TYPE_CHECKING:
    from ottla.client.local_cluster.local_cluster import LocalCluster

app = noun_app("up")

WATCH_S = 0.5


_Brokers = Annotated[
    int | None,
    Option(min=1, max=100, metavar="N", help="Number of brokers; it can grow, not shrink.", show_default="3"),
]
_BasePort = Annotated[
    int | None,
    Option(
        min=0,
        max=65535,
        metavar="PORT",
        help="Port of broker 1; broker 2 gets the next one, and so on. 0: any free ports.",
        show_default="9092",
    ),
]
_ZooKeeperPort = Annotated[
    int | None, Option(min=0, max=65535, metavar="PORT", help="Port of ZooKeeper.", show_default="2181")
]
_HttpBasePort = Annotated[
    int | None,
    Option(
        min=0, max=65535, metavar="PORT", help="HTTP port of broker 1, for metrics and health.", show_default="9644"
    ),
]
_ZooKeeper = Annotated[
    str | None, Option(metavar="HOST:PORT[/CHROOT]", help="Use this ZooKeeper instead of starting one.")
]
_Detach = Annotated[bool, Option("--detach", "-d", help="Return when the cluster is ready; it keeps running.")]
_Overrides = Annotated[
    list[str] | None,
    Option("--override", "-X", metavar="KEY=VALUE", help="Option of all brokers; can be repeated."),
]
_Timeout = Annotated[float, Option(min=1, metavar="SECONDS", help="How long a process may take to become ready.")]
_Secure = Annotated[
    bool,
    Option("--secure", help="Use TLS, passwords and ACLs; certificates and an administrator are created for you."),
]
_Console = Annotated[
    bool, Option("--console/--no-console", help="Also run the console, to see and run the cluster in a browser.")
]
_ConsolePort = Annotated[
    int | None,
    Option(
        min=0, max=65535, metavar="PORT", help="Port of the console.", show_default="8080, or a free one if it is taken"
    ),
]
_Fetch = Annotated[
    bool,
    Option(
        "--fetch/--no-fetch",
        help="Fetch ZooKeeper (8 MB) the first time, if this machine has none; OTTLA_FETCH=0 does not, either.",
    ),
]
# For tests, which start their own broker.
_BrokerCommand = Annotated[str | None, Option(hidden=True)]


@app.function()
def up(
    brokers: _Brokers = None,
    directory: DirectoryOption = None,
    base_port: _BasePort = None,
    zookeeper_port: _ZooKeeperPort = None,
    http_base_port: _HttpBasePort = None,
    zookeeper: _ZooKeeper = None,
    secure: _Secure = False,
    console: _Console = True,
    console_port: _ConsolePort = None,
    detach: _Detach = False,
    overrides: _Overrides = None,
    timeout: _Timeout = 60.0,
    fetch: _Fetch = True,
    broker_command: _BrokerCommand = None,
) -> None:
    """Run a cluster on this machine until Ctrl-C: a ZooKeeper, some brokers, and the console for your browser.

    The data stays in the directory for the next run. If some of the cluster's processes are already running, only the
    missing ones are started, on their previous ports. Ctrl-C then stops all of them, as `ottla down` does.

    Topics have three replicas, or one per broker if there are fewer brokers, and acks=all needs two of them. So the
    cluster keeps working when one broker dies.

    ZooKeeper is the one in ZOOKEEPER_HOME, or what `ottla zookeeper install` has fetched, or the one whose zkServer.sh
    is on the search path, or the one in the package pyspark. If there is none, it is fetched, as that command does. It
    needs Java 11 or later.

    \b
    Examples:
      ottla up                                   three brokers on ports 9092 to 9094
      ottla up --detach                          the same in the background; stop it with: ottla down
      ottla up --detach --brokers 4              add a fourth broker
      ottla up --brokers 1                       a single broker, with one replica of everything
      ottla up --dir /tmp/cluster --base-port 19092 --http-base-port 19644 --zookeeper-port 12181
      ottla up -X log.retention.hours=1 -X auto.create.topics.enable=false
      ottla up --zookeeper zk1:2181,zk2:2181/ottla
      ottla up --no-console                      without the web page on port 8080
      ottla up --secure                          clients need a password and TLS; prints the path of their files
    """
    from ottla.client.local_cluster.cluster_dir import ClusterDir
    from ottla.client.local_cluster.errors import InterruptedStartError
    from ottla.client.local_cluster.launcher import BROKER_COMMAND
    from ottla.client.local_cluster.local_cluster import LocalCluster
    from ottla.client.local_cluster.plan import ClusterOptions

    if zookeeper is not None and zookeeper_port is not None:
        raise click.BadParameter("use only one of them.", param_hint="--zookeeper and --zookeeper-port")
    options = ClusterOptions(
        brokers=brokers,
        base_port=base_port,
        http_base_port=http_base_port,
        zookeeper_port=zookeeper_port,
        zookeeper=zookeeper,
        overrides=tuple(overrides or ()),
        secure=secure,
        console=console and _has_console(),
        console_port=console_port,
    )
    with StopSignals() as signals:
        cluster = LocalCluster(
            ClusterDir(directory or default_directory()),
            broker_command=shlex.split(broker_command) if broker_command else BROKER_COMMAND,
            report=_tell,
            pause=signals.wait,
            start_timeout_s=timeout,
            fetch=fetch,
            progress=progress,
        )
        try:
            started = cluster.start(options)
        except InterruptedStartError as interrupted:
            say(str(interrupted))
            raise click.exceptions.Exit(1) from None
        with unread_is_fine():
            _show(cluster, directory, started=bool(started), detach=detach)
        if started and not detach:
            raise click.exceptions.Exit(_run_until_stopped(cluster, signals, directory))


def _tell(line: str) -> None:
    """Print a message. If nobody reads it any more, the cluster must not suffer."""
    with unread_is_fine():
        say(line)


def _has_console() -> bool:
    """Whether the console can run; if not, say what is missing. The cluster runs without it."""
    from importlib.util import find_spec

    if find_spec("aiohttp") is not None:
        return True
    say("The console is not started, because aiohttp is missing: pip install 'ottla[console]'")
    return False


def _show(cluster: LocalCluster, directory: Path | None, *, started: bool, detach: bool) -> None:
    if not started:
        say("Everything is already running.")
    from ottla.client.local_cluster.security import ADMINISTRATOR

    record = cluster.record()
    if record.console is not None and record.console.is_running():
        echo(f"console:           http://localhost:{record.console.port}\n")
    print_statuses(cluster.statuses())
    echo(f"\nbootstrap servers: {record.bootstrap_servers}")
    echo(f"zookeeper:         {record.zookeeper_connect}")
    echo(f"data and logs:     {cluster.directory.path}")
    if record.secure:
        files = cluster.directory.security
        if record.console is not None:
            echo(f"for the console:   user {ADMINISTRATOR}; its password is in {files.client_properties}")
        echo(f"for clients:       {files.client_properties} ({files.librdkafka_properties.name} for kcat)")
        say(f"\nTry: export OTTLA_COMMAND_CONFIG={shlex.quote(str(files.client_properties))}\n     ottla topic list")
    arguments = directory_arguments(directory)
    say(f"\nStop with: ottla down{arguments}" if detach or not started else "\nPress Ctrl-C to stop.")


def _run_until_stopped(cluster: LocalCluster, signals: StopSignals, directory: Path | None) -> int:
    """Report processes that end, until a signal arrives or no process is left; return the exit code."""
    died = False
    while not signals.wait(WATCH_S):
        for departure in cluster.departures():
            name = f"{departure.process.name} (pid {departure.process.pid})"
            if departure.asked:
                _tell(f"{name} was stopped by another command.")
                continue
            died = True
            _tell(
                f"{name} died: {departure.how}. The others keep running.\n"
                f"  its log:         {cluster.directory.log(departure.process)}\n"
                f"  to start it:     ottla up --detach{directory_arguments(directory)}"
            )
        if not cluster.is_running():
            _tell("No process is left.")
            return 1 if died else 0
    _tell("\nStopping. Press Ctrl-C again to kill the processes that are still running.")
    cluster.stop()
    return 0
