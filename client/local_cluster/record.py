"""The content of `cluster.json`: the cluster's processes with their addresses and pids."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from ottla.client.local_cluster.process import is_running

HOST = "127.0.0.1"


class Role(StrEnum):
    """The role of a process."""

    ZOOKEEPER = "zookeeper"
    BROKER = "broker"
    CONSOLE = "console"


class Relays(msgspec.Struct, frozen=True):
    """The ports where other brokers reach this one, and where it reaches ZooKeeper."""

    inter_broker_port: int
    zookeeper_port: int


class ProcessRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One process. It keeps its addresses across restarts; the pid is valid only with the start time."""

    role: Role
    id: int
    host: str
    port: int
    http_port: int | None = None
    # Its port for other brokers, if it differs from the port for clients, and the relays in between.
    inter_broker_port: int | None = None
    relays: Relays | None = None
    # Relative to the directory of the cluster, so that a stopped cluster can be moved.
    log: str
    pid: int | None = None
    start_time: str | None = None
    # Set before the process is stopped, so that watchers know that it did not crash.
    stopping: bool = False

    @property
    def name(self) -> str:
        """Return its name in messages: `broker 2`, `ZooKeeper`, `console`."""
        return {Role.ZOOKEEPER: "ZooKeeper", Role.CONSOLE: "console"}.get(self.role, f"broker {self.id}")

    @property
    def folder_name(self) -> str:
        """Return the name of its folder in the directory of the cluster."""
        return f"broker-{self.id}" if self.role is Role.BROKER else self.role.value

    def is_running(self) -> bool:
        """Return whether the last started process is still running."""
        return is_running(self.pid, self.start_time)

    @property
    def address(self) -> str:
        """Return the address for its clients."""
        return f"{self.host}:{self.port}"


class ClusterRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster. A base port of 0 means that its processes got any free ports."""

    zookeeper_connect: str
    base_port: int
    http_base_port: int
    overrides: tuple[str, ...] = ()
    # Whether clients need TLS, a password and ACLs.
    secure: bool = False
    # The rack of all its brokers: the name of this host when they were started. None in records of older versions.
    rack: str | None = None
    # In start order: ZooKeeper first, the console last.
    processes: tuple[ProcessRecord, ...] = ()

    @property
    def zookeepers(self) -> list[ProcessRecord]:
        """Return the embedded ZooKeeper, if it has one."""
        return [process for process in self.processes if process.role is Role.ZOOKEEPER]

    @property
    def brokers(self) -> list[ProcessRecord]:
        """Return the brokers in order of their ids."""
        return [process for process in self.processes if process.role is Role.BROKER]

    @property
    def console(self) -> ProcessRecord | None:
        """Return the console, if it has one."""
        return next((process for process in self.processes if process.role is Role.CONSOLE), None)

    @property
    def bootstrap_servers(self) -> str:
        """Return the bootstrap servers for clients."""
        return ",".join(broker.address for broker in self.brokers)

    def replacing(self, changed: Iterable[ProcessRecord]) -> ClusterRecord:
        """Return the record with these processes replacing those with the same role and id."""
        by_key = {(process.role, process.id): process for process in changed}
        processes = tuple(by_key.get((process.role, process.id), process) for process in self.processes)
        return msgspec.structs.replace(self, processes=processes)
