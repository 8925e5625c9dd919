"""Plan the processes of a cluster and their options, from the user's options and the existing cluster. No I/O.

A cluster keeps its ports and its number of brokers from one `ottla up` to the next, unless the user changes them. It
can only grow: a broker may have the only copy of some data. While any of its processes is running, nothing else
changes; the broker options (`-X`) are those of the command that found no process running.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from ottla.client.local_cluster.errors import ClusterError, OptionError
from ottla.client.local_cluster.record import HOST, ClusterRecord, ProcessRecord, Relays, Role
from ottla.client.local_cluster.security import PROTOCOL

BROKERS = 3
BROKERS_MAX = 100
BASE_PORT = 9092
HTTP_BASE_PORT = 9644
ZOOKEEPER_PORT = 2181
ZOOKEEPER_ID = 0
CONSOLE_PORT = 8080
CONSOLE_ID = 0
PORT_MAX = 65_535
# With three replicas the cluster survives the loss of a broker with one to spare; more brokers share the load.
REPLICAS_MAX = 3
OFFSETS_PARTITIONS = "6"
# In a local cluster, the loss of a broker should be noticed soon.
SESSION_TIMEOUT_MS = 6_000
CONNECTION_TIMEOUT_MS = 18_000
SHUTDOWN_BACKOFF_MS = 200

_OVERRIDE = re.compile(r"[A-Za-z0-9._-]+=.*", re.DOTALL)
_SERVER = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::(\d{1,5}))?")
_CHROOT = re.compile(r"(?:/[^/\s,]+)*")
_SET_BY_US = {
    "broker.id": "--brokers",
    "node.id": "--brokers",
    "listeners": "--base-port",
    "ottla.http.listener": "--http-base-port",
    "log.dirs": "--dir",
    "log.dir": "--dir",
    "zookeeper.connect": "--zookeeper",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """The user's options; None if not given. Port 0 means any free port."""

    brokers: int | None = None
    base_port: int | None = None
    http_base_port: int | None = None
    zookeeper_port: int | None = None
    zookeeper: str | None = None
    overrides: tuple[str, ...] = ()
    secure: bool = False
    # Whether the console runs with the cluster. Without a port it is 8080, or any free port if that is taken.
    console: bool = False
    console_port: int | None = None
    # The relays between each broker and the others, for tests that cut them off.
    relays: tuple[Relays, ...] = ()

    def __post_init__(self) -> None:
        if self.zookeeper is not None:
            zookeeper_servers(self.zookeeper)
        for override in self.overrides:
            if not _OVERRIDE.fullmatch(override):
                raise OptionError(f'"{override}" is not key=value.')
            key = override.partition("=")[0]
            if key in _SET_BY_US:
                raise OptionError(f"{key} differs between the brokers of a cluster: use {_SET_BY_US[key]}.")


def zookeeper_servers(connect: str) -> list[tuple[str, int]]:
    """Return host and port of the servers in a connect string."""
    hosts, slash, chroot = connect.partition("/")
    matches = [_SERVER.fullmatch(server) for server in hosts.split(",")]
    servers = [(match[1] or match[2], int(match[3] or ZOOKEEPER_PORT)) for match in matches if match is not None]
    if (
        len(servers) < len(matches)
        or not _CHROOT.fullmatch(slash + chroot)
        or any(port > PORT_MAX for _, port in servers)
    ):
        raise OptionError(f'"{connect}" is not HOST:PORT[,HOST:PORT...][/CHROOT].')
    return servers


class _Ports:
    """Assigns ports to processes: the previous ones unless the user wants others, and none twice."""

    def __init__(self, previous: ClusterRecord | None, free_port: Callable[[set[int]], int]) -> None:
        self._free_port = free_port
        self._taken = {port for process in (previous.processes if previous else ()) for port in _ports(process)}

    def take(self, asked: int | None, base: int, index: int, before: int | None) -> int:
        """Return the port of the process at `index`, which had `before`; base 0 means any free port."""
        if before is not None and not asked:
            return before
        port = base + index if base else self._free_port(self._taken)
        if port > PORT_MAX:
            raise OptionError(f"Port {port} is above {PORT_MAX}.")
        self._taken.add(port)
        return port


def plan(
    options: ClusterOptions,
    previous: ClusterRecord | None,
    *,
    running: bool,
    free_port: Callable[[set[int]], int],
    host_name: str,
) -> ClusterRecord:
    """Return the planned cluster, with the pids from `previous`."""
    count = options.brokers or (len(previous.brokers) if previous else BROKERS)
    if previous is not None:
        _check_not_fewer(previous, count)
        if running:
            _check_compatible(options, previous)
    ports = _Ports(previous, free_port)
    before = {(process.role, process.id): process for process in (previous.processes if previous else ())}

    zookeepers: list[ProcessRecord] = []
    connect = options.zookeeper or _kept_connect(options, previous, running=running)
    if connect is None:
        old = before.get((Role.ZOOKEEPER, ZOOKEEPER_ID))
        port = ports.take(
            options.zookeeper_port, _first(options.zookeeper_port, ZOOKEEPER_PORT), 0, old.port if old else None
        )
        zookeepers = [_process(Role.ZOOKEEPER, ZOOKEEPER_ID, port, None, old)]
        connect = zookeepers[0].address

    base_port = _first(options.base_port, previous.base_port if previous else None, BASE_PORT)
    http_base_port = _first(options.http_base_port, previous.http_base_port if previous else None, HTTP_BASE_PORT)
    brokers = []
    for index in range(count):
        old = before.get((Role.BROKER, index + 1))
        port = ports.take(options.base_port, base_port, index, old.port if old else None)
        http_port = ports.take(options.http_base_port, http_base_port, index, old.http_port if old else None)
        broker = _process(Role.BROKER, index + 1, port, http_port, old)
        if options.relays:
            inter_broker_port = ports.take(None, 0, index, old.inter_broker_port if old else None)
            relays = options.relays[index]
            broker = msgspec.structs.replace(broker, inter_broker_port=inter_broker_port, relays=relays)
        brokers.append(broker)
    consoles: list[ProcessRecord] = []
    old = before.get((Role.CONSOLE, CONSOLE_ID))
    if options.console or (old is not None and old.is_running()):
        asked = options.console_port
        port = ports.take(asked, _first(asked, CONSOLE_PORT), 0, old.port if old else None)
        consoles = [_process(Role.CONSOLE, CONSOLE_ID, port, None, old)]
    _check_distinct([*zookeepers, *brokers, *consoles])
    return ClusterRecord(
        zookeeper_connect=connect,
        base_port=base_port,
        http_base_port=http_base_port,
        overrides=previous.overrides if running and previous else options.overrides,
        secure=options.secure or (previous.secure if previous else False),
        # The name of a host may change while brokers run, and one that is added belongs with the others.
        rack=(previous.rack if running and previous else None) or host_name,
        processes=(*zookeepers, *brokers, *consoles),
    )


def broker_identity(cluster: ClusterRecord, broker: ProcessRecord, log_dir: str) -> dict[str, str]:
    """Return the options that differ between brokers, and those with which they find each other."""
    return {
        "broker.id": str(broker.id),
        "listeners": f"{_protocol(cluster)}://{broker.address}",
        "ottla.http.listener": f"{broker.host}:{broker.http_port}",
        "log.dirs": log_dir,
        "zookeeper.connect": cluster.zookeeper_connect,
        **(_by_relays(cluster, broker, broker.relays) if broker.relays else {}),
    }


def _by_relays(cluster: ClusterRecord, broker: ProcessRecord, relays: Relays) -> dict[str, str]:
    """Return the options of a broker that is connected to the others and to ZooKeeper through relays."""
    _, slash, chroot = cluster.zookeeper_connect.partition("/")
    protocol = _protocol(cluster)
    clients = f"{protocol}://{broker.address}"
    return {
        "listeners": f"{clients},INTERNAL://{broker.host}:{broker.inter_broker_port}",
        "advertised.listeners": f"{clients},INTERNAL://{broker.host}:{relays.inter_broker_port}",
        "listener.security.protocol.map": f"{protocol}:{protocol},INTERNAL:{protocol}",
        "inter.broker.listener.name": "INTERNAL",
        "zookeeper.connect": f"{broker.host}:{relays.zookeeper_port}{slash}{chroot}",
    }


def _protocol(cluster: ClusterRecord) -> str:
    return PROTOCOL if cluster.secure else "PLAINTEXT"


def broker_listeners(cluster: ClusterRecord, broker: ProcessRecord) -> list[str]:
    """Return the names of a broker's listeners."""
    return [_protocol(cluster), *(["INTERNAL"] if broker.relays else [])]


def broker_defaults(brokers: int, rack: str | None = None) -> Mapping[str, str]:
    """Return default options for a cluster of this many brokers on one machine; the environment and `-X` override them.

    One broker can be lost without losing records, and partitions still accept new ones: with three replicas, acks=all
    needs two of them. With two replicas that is not possible, so partitions continue with one.

    The brokers of a host fail together, so they are one rack. Brokers of other hosts that join the cluster, with racks
    of their own, then get the other replicas. As long as there is one rack, it makes no difference.
    """
    replicas = str(min(brokers, REPLICAS_MAX))
    min_isr = "2" if brokers >= REPLICAS_MAX else "1"
    return {
        "num.partitions": "1",
        "default.replication.factor": replicas,
        "min.insync.replicas": min_isr,
        "offsets.topic.replication.factor": replicas,
        # The first consumer waits until these partitions are created; fifty with three replicas take a second.
        "offsets.topic.num.partitions": OFFSETS_PARTITIONS,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": min_isr,
        "group.initial.rebalance.delay.ms": "0",
        "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
        # A start on a busy machine may take longer than a session.
        "zookeeper.connection.timeout.ms": str(CONNECTION_TIMEOUT_MS),
        # `ottla down` stops all brokers, and the last one has no broker to hand over to.
        "controlled.shutdown.retry.backoff.ms": str(SHUTDOWN_BACKOFF_MS),
        **({"broker.rack": rack} if rack else {}),
    }


def _process(role: Role, number: int, port: int, http_port: int | None, old: ProcessRecord | None) -> ProcessRecord:
    log = f"broker-{number}/broker.log" if role is Role.BROKER else f"{role.value}/{role.value}.log"
    return ProcessRecord(
        role=role,
        id=number,
        host=HOST,
        port=port,
        http_port=http_port,
        log=log,
        pid=old.pid if old else None,
        start_time=old.start_time if old else None,
    )


def _kept_connect(options: ClusterOptions, previous: ClusterRecord | None, *, running: bool) -> str | None:
    """Return the external ZooKeeper that the cluster keeps using, unless the user now asks for an embedded one."""
    own_asked = options.zookeeper_port is not None and not running
    return None if previous is None or previous.zookeepers or own_asked else previous.zookeeper_connect


def _check_not_fewer(previous: ClusterRecord, count: int) -> None:
    has = len(previous.brokers)
    if count < has:
        raise ClusterError(
            f"This cluster has {has} brokers. None is removed, because it may have the only copy of some data."
            f" Leave out --brokers to run all {has}, or start another cluster in another --dir."
        )


def _check_compatible(options: ClusterOptions, previous: ClusterRecord) -> None:
    """Refuse changes that would give new processes other options than the running ones."""
    asked = (
        ("--base-port", options.base_port not in (None, 0, previous.base_port)),
        ("--http-base-port", options.http_base_port not in (None, 0, previous.http_base_port)),
        ("--zookeeper-port", options.zookeeper_port not in (None, 0, *(old.port for old in previous.zookeepers))),
        ("--zookeeper", options.zookeeper not in (None, previous.zookeeper_connect)),
        ("--secure", options.secure and not previous.secure),
        ("-X", bool(options.overrides) and options.overrides != previous.overrides),
    )
    changed = [option for option, differs in asked if differs]
    if changed:
        raise ClusterError(
            f"This cluster runs with another {' and '.join(changed)}. Stop it first with: ottla down"
            " (or start a second one in another --dir)."
        )


def _check_distinct(processes: list[ProcessRecord]) -> None:
    users: dict[int, str] = {}
    for process in processes:
        for port in _ports(process):
            if port in users:
                raise OptionError(f"Port {port} would be used by {users[port]} and {process.name}: choose other ports.")
            users[port] = process.name


def _ports(process: ProcessRecord) -> list[int]:
    return [port for port in (process.port, process.http_port, process.inter_broker_port) if port is not None]


def _first(*values: int | None) -> int:
    return next(value for value in values if value is not None)
