"""A cluster for fault tests: a real ZooKeeper and some brokers as processes on free ports."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, Self

import msgspec

from ottla.client.local_cluster.cluster_dir import ClusterDir
from ottla.client.local_cluster.errors import ClusterError, OptionError, StartFailedError
from ottla.client.local_cluster.launcher import BROKER_COMMAND, launch
from ottla.client.local_cluster.local_cluster import LocalCluster
from ottla.client.local_cluster.plan import ClusterOptions
from ottla.client.local_cluster.process import send_signal
from ottla.client.local_cluster.record import ClusterRecord, ProcessRecord, Relays

START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 30.0
# Another program may take a port after we found it free and before our process uses it.
START_ATTEMPTS: Final = 3
_POLL_S: Final = 0.02
_PROC: Final = Path("/proc/net/tcp")
_OPTIONS: Final = {
    # The disk of a test machine may be small.
    "ottla.log.min.free.bytes": "0",
    "ottla.log.min.free.percent": "0",
    # How long a test waits until other brokers take over from a killed one.
    "zookeeper.session.timeout.ms": "3000",
    # A start on a busy machine may take longer than that.
    "zookeeper.connection.timeout.ms": "60000",
}

# A broker by its id, from 1; or the ZooKeeper of the cluster.
Member = int | Literal["zookeeper"]


class FaultCluster:
    """A cluster in a directory, for one test run; its processes never outlive the run.

    A broker is named by its id, from 1 to the number of brokers; the cluster's ZooKeeper is "zookeeper". A member that
    is killed, stopped or paused keeps its address and its data. Brokers reach each other and ZooKeeper through relays,
    which can be cut; clients reach every broker directly. `start` without a name restores everything.
    """

    def __init__(self, directory: Path, brokers: int = 1, overrides: Mapping[str, str] | None = None) -> None:
        """Start a cluster; `overrides` are options of the brokers, under Kafka's names."""
        if brokers < 1:
            raise OptionError(f"A cluster has at least one broker, not {brokers}.")
        self._directory = ClusterDir(directory)
        self._local = LocalCluster(self._directory, start_timeout_s=START_TIMEOUT_S)
        self._paused: set[Member] = set()
        self._guard = self._helper("guard")
        self._links = self._helper("links", str(brokers))
        try:
            self._start_all(self._options(brokers, {**_OPTIONS, **(overrides or {})}))
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"<FaultCluster {self.bootstrap_servers} running={self.running()}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def bootstrap_servers(self) -> str:
        """The bootstrap servers for clients."""
        return self._record.bootstrap_servers

    @property
    def brokers(self) -> tuple[int, ...]:
        """The ids of all brokers, running or not."""
        return tuple(process.id for process in self._record.brokers)

    @property
    def zookeeper_connect(self) -> str:
        """The address of ZooKeeper."""
        return self._record.zookeeper_connect

    def address(self, broker: int) -> str:
        """Return host:port of a broker."""
        return self._process(broker).address

    def log(self, member: Member) -> str:
        """Return the log output of a broker or of ZooKeeper so far."""
        return self._directory.log(self._process(member)).read_text(errors="replace")

    def data_dir(self, broker: int) -> Path:
        """Return the directory with the partitions of a broker."""
        return self._directory.folder(self._process(broker)) / "data"

    def running(self) -> tuple[int, ...]:
        """Return the running brokers, including paused ones."""
        return tuple(process.id for process in self._record.brokers if process.is_running())

    # Faults and recovery.

    def kill(self, member: Member) -> None:
        """Kill it as a crash would (SIGKILL), and return when it has ended."""
        self._end(member, signal.SIGKILL)

    def stop(self, member: Member) -> None:
        """Stop it cleanly (SIGTERM): a broker hands over its partitions. A paused one is resumed for that."""
        self.resume(member)
        self._end(member, signal.SIGTERM)

    def pause(self, member: Member) -> None:
        """Freeze it (SIGSTOP): its connections stay open but nothing answers."""
        self._signal(member, signal.SIGSTOP)
        self._paused.add(member)

    def resume(self, member: Member) -> None:
        """Continue after `pause`."""
        if member in self._paused:
            self._signal(member, signal.SIGCONT)
            self._paused.discard(member)

    def partition(self, one: Member, other: Member) -> None:
        """Cut two brokers, or a broker and ZooKeeper, off from each other in both directions, until `heal`.

        Connections between them stay open, and sent data waits. This needs Linux, but no privileges.
        """
        if not _PROC.exists():
            raise ClusterError("Partitions between brokers need Linux: there is no /proc/net.")
        self._links_do("cut", one, other)

    def heal(self, one: Member | None = None, other: Member | None = None) -> None:
        """End one network partition, or all of them; data that was sent meanwhile arrives."""
        if one is None or other is None:
            self._links_do("heal")
        else:
            self._links_do("heal", one, other)

    def start(self, member: Member | None = None) -> None:
        """Start stopped members and resume paused ones: one member, or all; return when they serve.

        Without a name, this also ends all network partitions.
        """
        if member is None:
            self.heal()
        members: tuple[Member, ...] = ("zookeeper", *self.brokers) if member is None else (member,)
        for each in members:
            self.resume(each)
        for each in members:
            if not self._process(each).is_running():
                self._launch(each)

    def restart(self, member: Member) -> None:
        """Stop it cleanly, and start it again."""
        self.stop(member)
        self.start(member)

    def close(self) -> None:
        """Kill all processes; the caller removes the directory."""
        record = self._directory.read()
        for process in record.processes if record else ():
            if process.is_running():
                send_signal(process.pid or 0, process.start_time, signal.SIGKILL)
        for process in record.processes if record else ():
            _wait_for_end(process, STOP_TIMEOUT_S)
        for helper in (self._links, self._guard):
            # It ends when its input ends.
            helper.communicate()

    # Private methods.

    def _helper(self, name: str, *arguments: str) -> subprocess.Popen[str]:
        """Start a process that ends with us."""
        command = [sys.executable, "-P", "-m", f"ottla.client.testing.{name}", str(self._directory.path), *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, start_new_session=True)  # noqa: S603 - our own

    def _links_answer(self) -> str:
        assert self._links.stdout is not None
        answer = self._links.stdout.readline()
        if not answer:
            raise ClusterError("The relays between the brokers have ended.")
        return answer

    def _links_do(self, verb: str, *members: Member) -> None:
        if len(set(members)) != len(members):
            raise OptionError("A member cannot be cut off from itself.")
        for member in members:
            self._process(member)
        assert self._links.stdin is not None
        self._links.stdin.write(" ".join((verb, *map(str, members))) + "\n")
        self._links.stdin.flush()
        self._links_answer()

    @property
    def _record(self) -> ClusterRecord:
        return self._local.record()

    def _process(self, member: Member) -> ProcessRecord:
        record = self._record
        known: dict[Member, ProcessRecord] = {process.id: process for process in record.brokers}
        known["zookeeper"] = record.zookeepers[0]
        if member not in known:
            raise OptionError(f"{member!r} is not in this cluster, which has {[*known]}.")
        return known[member]

    def _options(self, brokers: int, overrides: Mapping[str, str]) -> ClusterOptions:
        return ClusterOptions(
            brokers=brokers,
            base_port=0,
            http_base_port=0,
            zookeeper_port=0,
            overrides=tuple(f"{key}={value}" for key, value in overrides.items()),
            relays=tuple(Relays(*ports) for ports in json.loads(self._links_answer()).values()),
        )

    def _start_all(self, options: ClusterOptions) -> None:
        for attempt in range(START_ATTEMPTS):
            try:
                self._local.start(options)
                return
            except StartFailedError:
                if attempt + 1 == START_ATTEMPTS:
                    raise
                # A cluster keeps its ports; without its record it looks for new ones.
                (self._directory.path / "cluster.json").unlink(missing_ok=True)

    def _signal(self, member: Member, number: signal.Signals) -> ProcessRecord:
        process = self._process(member)
        if not process.is_running():
            raise ClusterError(f"{process.name} is not running.")
        send_signal(process.pid or 0, process.start_time, number)
        return process

    def _end(self, member: Member, number: signal.Signals) -> None:
        process = self._signal(member, number)
        _wait_for_end(process, STOP_TIMEOUT_S)
        self._paused.discard(member)
        self._directory.write(self._record.replacing([msgspec.structs.replace(process, pid=None, start_time=None)]))

    def _launch(self, member: Member) -> None:
        started = launch(self._directory, self._record, self._process(member), BROKER_COMMAND)
        self._directory.write(self._record.replacing([started.record]))
        deadline = time.monotonic() + START_TIMEOUT_S
        while not started.is_ready():
            if time.monotonic() > deadline:
                raise started.failure(f"was not ready in {START_TIMEOUT_S:.0f} s")
            time.sleep(_POLL_S)


def _wait_for_end(process: ProcessRecord, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while process.is_running():
        if time.monotonic() > deadline:
            raise ClusterError(f"{process.name} (pid {process.pid}) did not end in {timeout_s:.0f} s.")
        time.sleep(_POLL_S)
