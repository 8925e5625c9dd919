"""Start one process of a cluster, and detect when it is ready."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from ottla.client.local_cluster import zookeeper
from ottla.client.local_cluster.cluster_dir import ClusterDir
from ottla.client.local_cluster.errors import ClusterError, StartFailedError
from ottla.client.local_cluster.plan import broker_defaults, broker_identity, broker_listeners
from ottla.client.local_cluster.ports import is_accepting
from ottla.client.local_cluster.process import LogTail, ending, spawn, start_time
from ottla.client.local_cluster.properties import write_properties
from ottla.client.local_cluster.record import ClusterRecord, ProcessRecord, Role
from ottla.client.local_cluster.zookeeper_commands import ZooKeeperCommandError, run_in_zookeeper

# Without -P, the working directory would come before the installed packages.
BROKER_COMMAND = (sys.executable, "-P", "-m", "ottla.broker")
# By its name alone: the console stands on the client, which does not know it.
CONSOLE_COMMAND = (sys.executable, "-P", "-m", "ottla.console")
LOG_LINES_SHOWN = 12


@dataclass(slots=True)
class Launch:
    """A process that was started and may not be ready yet."""

    record: ProcessRecord
    log: LogTail
    said_started: bool = False

    def is_ready(self) -> bool:
        """Return whether it serves; raise if it has ended instead."""
        if not self.record.is_running():
            raise self.failure(f"ended before it was ready ({ending(self.record.pid or 0)})")
        if self.record.role is Role.ZOOKEEPER:
            return zookeeper.is_serving(self.record.host, self.record.port, zookeeper.READY_TIMEOUT_S)
        is_console = self.record.role is Role.CONSOLE
        line = b"console: http" if is_console else b"[KafkaServer id=%d] started" % self.record.id
        self.said_started = self.said_started or self.log.has(line)
        return self.said_started and is_accepting(self.record.host, self.record.port)

    def failure(self, what: str) -> StartFailedError:
        """Return the error with the end of the log, which has the reason."""
        lines = self.log.last_lines(LOG_LINES_SHOWN)
        said = "".join(f"\n    {line}" for line in lines) if lines else " nothing."
        return StartFailedError(f"{self.record.name} {what}. It wrote to {self.log.path}:{said}")


def launch(
    directory: ClusterDir, cluster: ClusterRecord, process: ProcessRecord, broker_command: Sequence[str]
) -> Launch:
    """Write the config of a process and start it."""
    folder = directory.folder(process)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        log = LogTail(directory.log(process))
        if process.role is Role.ZOOKEEPER:
            security = directory.security.zookeeper_server() if cluster.secure else None
            zookeeper.prepare(folder, process.host, process.port, security)
            command = zookeeper.command(folder, security=security)
        elif process.role is Role.CONSOLE:
            command = [*CONSOLE_COMMAND, *_console_arguments(directory, cluster, process)]
        else:
            command = [*broker_command, *_broker_arguments(directory, cluster, process)]
    except OSError as error:
        raise ClusterError(f"Cannot use {folder}: {error.strerror}.") from error
    # Unbuffered, so that the line that a broker prints after its start arrives at once.
    pid = spawn(command, log.path, {**os.environ, "PYTHONUNBUFFERED": "1"})
    record = msgspec.structs.replace(process, pid=pid, start_time=start_time(pid), stopping=False)
    return Launch(record, log)


def protect_zookeeper(directory: ClusterDir, cluster: ClusterRecord) -> None:
    """Give the nodes of the cluster's own ZooKeeper to the brokers' login.

    Brokers do that for the nodes that they create. The root, and the nodes of earlier versions, belong to everybody.
    """
    security = directory.security
    security.write_zookeeper_properties(cluster.zookeeper_connect)
    try:
        run_in_zookeeper("secure", security.zookeeper_properties, is_local=True)
    except ZooKeeperCommandError as error:
        raise ClusterError(f"Cannot protect the nodes in ZooKeeper: {error}") from error


def _console_arguments(directory: ClusterDir, cluster: ClusterRecord, console: ProcessRecord) -> list[str]:
    """Return the arguments of the console. It gets no password: its users log in with theirs."""
    options = directory.security.visitor_options() if cluster.secure else {}
    arguments = ["-b", cluster.bootstrap_servers, "--host", console.host, "--port", str(console.port)]
    for key, value in options.items():
        arguments += ["-X", f"{key}={value}"]
    return arguments


def _broker_arguments(directory: ClusterDir, cluster: ClusterRecord, broker: ProcessRecord) -> list[str]:
    """Write a config that can also be used to start the broker manually, and return the arguments.

    The environment overrides the file, so required options and the user's options are passed as overrides too.
    """
    folder = directory.folder(broker)
    identity = broker_identity(cluster, broker, str(folder / "data"))
    secret: Mapping[str, str] = {}
    if cluster.secure:
        identity = {**directory.security.broker_options(), **identity}
        if broker.relays:
            del identity["security.inter.broker.protocol"]
        secret = directory.security.broker_secrets(broker_listeners(cluster, broker))
        if cluster.zookeepers:
            identity = {**identity, **directory.security.zookeeper_options()}
            secret = {**secret, **directory.security.zookeeper_secrets()}
    said = dict(_key_and_value(override) for override in cluster.overrides)
    config = folder / "server.properties"
    write_properties(config, {**broker_defaults(len(cluster.brokers), cluster.rack), **said, **identity, **secret})
    arguments = ["--config", str(config)]
    for key, value in {**said, **identity}.items():
        arguments += ["--override", f"{key}={value}"]
    return arguments


def _key_and_value(override: str) -> tuple[str, str]:
    key, _, value = override.partition("=")
    return key, value
