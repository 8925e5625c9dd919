"""Start, watch and stop the processes of a local cluster.

Starting and stopping hold the lock of the directory. The record is written after each step, so it lists every process
that was started, even if this process is killed.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass

import msgspec

from ottla.client.local_cluster.cluster_dir import ClusterDir
from ottla.client.local_cluster.errors import (
    ClusterError,
    InterruptedStartError,
    StartFailedError,
    ZooKeeperNotFoundError,
)
from ottla.client.local_cluster.java import find_java
from ottla.client.local_cluster.launcher import BROKER_COMMAND, Launch, launch, protect_zookeeper
from ottla.client.local_cluster.plan import ClusterOptions, plan, zookeeper_servers
from ottla.client.local_cluster.ports import check_ports_are_free, free_port, is_accepting, is_free
from ottla.client.local_cluster.process import ending, send_signal
from ottla.client.local_cluster.record import HOST, ClusterRecord, ProcessRecord, Role
from ottla.client.local_cluster.status import ProcessStatus, status
from ottla.client.local_cluster.zookeeper_fetch import ZooKeeperFetch
from ottla.client.local_cluster.zookeeper_jars import find_class_path

POLL_S = 0.02
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
# After SIGKILL only the kernel is left to wait for.
KILL_TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 3.0
# Set to 0, nothing is fetched from the network, as with `ottla up --no-fetch`.
FETCH_VARIABLE = "OTTLA_FETCH"

# Opens a bar with a label and a total, which shows the amount that it is called with.
Progress = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]


def no_bar(label: str, total: int) -> AbstractContextManager[Callable[[int], None]]:
    """Show nothing."""
    return nullcontext(lambda done: None)


def sleep(seconds: float) -> bool:
    """Wait without reacting to interruptions."""
    time.sleep(seconds)
    return False


@dataclass(frozen=True, slots=True)
class Departure:
    """A process that has ended; `asked` means that it was stopped on purpose."""

    process: ProcessRecord
    how: str
    asked: bool


class LocalCluster:
    """A cluster in a directory.

    `report` is called with a line for each step. `pause` waits for some seconds and returns whether the user wants to
    stop. During a start, that undoes the start; during a stop, it kills the remaining processes. With `fetch`, a
    ZooKeeper that this machine lacks is fetched, with a bar of `progress`.
    """

    def __init__(
        self,
        directory: ClusterDir,
        *,
        broker_command: Sequence[str] = BROKER_COMMAND,
        report: Callable[[str], None] = lambda line: None,
        pause: Callable[[float], bool] = sleep,
        start_timeout_s: float = START_TIMEOUT_S,
        stop_timeout_s: float = STOP_TIMEOUT_S,
        fetch: bool = True,
        progress: Progress = no_bar,
    ) -> None:
        self.directory = directory
        self._broker_command = broker_command
        self._report = report
        self._pause = pause
        self._start_timeout_s = start_timeout_s
        self._stop_timeout_s = stop_timeout_s
        self._fetch = fetch and os.environ.get(FETCH_VARIABLE, "") != "0"
        self._progress = progress
        # The last record read: a cluster can be stopped even if its directory was removed meanwhile.
        self._known: ClusterRecord | None = None
        # The processes that were running at the last call of `departures`.
        self._watched: list[ProcessRecord] = []

    def record(self) -> ClusterRecord:
        """Return the record of the cluster."""
        record = self.directory.read() or self._known
        if record is None:
            path = self.directory.path
            raise ClusterError(f"There is no cluster in {path}. Start one with: ottla up --dir {path}")
        self._known = record
        return record

    def start(self, options: ClusterOptions) -> list[ProcessRecord]:
        """Start the missing processes, wait until they are ready, and return them; on failure, stop them again."""
        if "," in str(self.directory.path):
            raise ClusterError(f"{self.directory.path} contains a comma, which separates log directories.")
        with self.directory.locked(self._start_timeout_s, self._pause):
            previous = self.directory.read()
            running = any(
                process.is_running() for process in (previous.processes if previous else ()) if not _is_console(process)
            )
            cluster = plan(
                options,
                previous,
                running=running,
                free_port=lambda taken: free_port(HOST, taken),
                host_name=socket.gethostname(),
            )
            if not options.console_port:
                cluster = _with_free_console_port(cluster)
            missing = [process for process in cluster.processes if not process.is_running()]
            if missing:
                _check_ports(missing)
                if not cluster.zookeepers:
                    _check_reachable(cluster.zookeeper_connect)
                elif any(process.role is Role.ZOOKEEPER for process in missing):
                    self._provide_zookeeper(tls=cluster.secure)
                if cluster.secure:
                    self.directory.security.prepare(cluster.bootstrap_servers)
                self._start_missing(cluster, missing)
            return missing

    def restart(self, broker_id: int, may_stop: Callable[[], None]) -> ProcessRecord:
        """Stop a broker if it is running, start it, wait until it is ready, and return it.

        `may_stop` is called right before the stop, while no other command starts or stops anything, and may raise. If
        the broker does not become ready, it is left stopped.
        """
        self.record()
        with self.directory.locked(self._start_timeout_s, self._pause):
            broker = self._broker(broker_id)
            if broker.is_running():
                may_stop()
                self._stop([broker])
            _check_ports([broker])
            cluster = self.record()
            # The records of older versions have no rack.
            cluster = msgspec.structs.replace(cluster, rack=cluster.rack or socket.gethostname())
            self._start_missing(cluster, [self._broker(broker_id)])
            return self._broker(broker_id)

    def _broker(self, broker_id: int) -> ProcessRecord:
        found = next((each for each in self.record().brokers if each.id == broker_id), None)
        if found is None:
            raise ClusterError(f"The cluster in {self.directory.path} has no broker {broker_id}.")
        return found

    def stop(self) -> list[ProcessRecord]:
        """Stop all running processes, each before those that it needs, and return them."""
        self.record()
        with self.directory.locked(self._start_timeout_s, self._pause):
            running = [process for process in self.record().processes if process.is_running()]
            self._stop(running)
            return running

    def statuses(self) -> list[ProcessStatus]:
        """Return the state of every process."""
        return [status(process) for process in self.record().processes]

    def departures(self) -> list[Departure]:
        """Return the processes that have ended since the last call."""
        ended = [process for process in self._watched if not process.is_running()]
        # Read the record after that: a process is marked in it before it is stopped.
        processes = self.record().processes
        unmarked = {process.pid for process in processes if not process.stopping}
        kept = [process for process in self._watched if process not in ended]
        known = {process.pid for process in self._watched}
        self._watched = kept + [each for each in processes if each.pid not in known and each.is_running()]
        return [Departure(each, ending(each.pid or 0), asked=each.pid not in unmarked) for each in ended]

    def is_running(self) -> bool:
        """Return whether any process of the cluster is running."""
        return any(process.is_running() for process in self.record().processes)

    def _provide_zookeeper(self, *, tls: bool) -> None:
        """Check that this machine can run ZooKeeper. If only ZooKeeper itself is missing, fetch it."""
        find_java()
        try:
            find_class_path(tls=tls)
        except ZooKeeperNotFoundError:
            if not self._fetch:
                raise
        else:
            return
        fetch = ZooKeeperFetch()
        self._report(fetch.announcement)
        with self._progress(fetch.label, fetch.size_bytes) as tell:
            fetch.start()
            while not fetch.is_over(tell):
                if self._pause(POLL_S):
                    fetch.cancel()
                    raise InterruptedStartError("Stopped while ZooKeeper was being fetched. Nothing was started.")

    def _start_missing(self, cluster: ClusterRecord, missing: list[ProcessRecord]) -> None:
        started: list[ProcessRecord] = []
        try:
            for role in (Role.ZOOKEEPER, Role.BROKER, Role.CONSOLE):
                launches: list[Launch] = []
                for process in missing:
                    if process.role is role:
                        launches.append(launch(self.directory, cluster, process, self._broker_command))
                        started.append(launches[-1].record)
                        cluster = cluster.replacing(started)
                        self.directory.write(cluster)
                try:
                    self._await_ready(launches)
                except StartFailedError as error:
                    if role is not Role.CONSOLE:
                        raise
                    # A cluster without its console is still a cluster.
                    self._report(str(error))
                    self._stop([each.record for each in launches])
                    cluster = self.record()
                if role is Role.ZOOKEEPER and launches and cluster.secure:
                    protect_zookeeper(self.directory, cluster)
        except BaseException:
            self._stop(started)
            raise
        self._watched = list(cluster.processes)

    def _await_ready(self, launches: list[Launch]) -> None:
        started_at = time.monotonic()
        waiting = launches
        while waiting:
            seconds = time.monotonic() - started_at
            for each in waiting:
                if each.is_ready():
                    self._report(f"{each.record.name} is ready after {seconds:.1f} s (pid {each.record.pid})")
                    waiting = [other for other in waiting if other is not each]
            if waiting and seconds > self._start_timeout_s:
                raise waiting[0].failure(f"was not ready in {self._start_timeout_s:.0f} s")
            if waiting and self._pause(POLL_S):
                raise InterruptedStartError("Stopped before the cluster was ready.")

    def _stop(self, running: list[ProcessRecord]) -> None:
        for role in (Role.CONSOLE, Role.BROKER, Role.ZOOKEEPER):
            stage = [process for process in running if process.role is role]
            if not stage:
                continue
            # The mark is only for watchers. On a full disk the processes must stop without it.
            with suppress(ClusterError):
                self._update([msgspec.structs.replace(process, stopping=True) for process in stage])
            self._terminate([process for process in stage if process.is_running()])
            self._update([msgspec.structs.replace(process, pid=None, start_time=None) for process in stage])

    def _terminate(self, processes: list[ProcessRecord]) -> None:
        """Send SIGTERM; after the deadline, or when the user does not want to wait, send SIGKILL."""
        left = self._signal_and_wait(processes, signal.SIGTERM, self._stop_timeout_s, "stopped")
        if not left:
            return
        for process in left:
            self._report(f"{process.name} (pid {process.pid}) did not stop in time and is killed")
        left = self._signal_and_wait(left, signal.SIGKILL, KILL_TIMEOUT_S, "killed")
        if left:
            raise ClusterError(f"{', '.join(f'{each.name} (pid {each.pid})' for each in left)} cannot be killed.")

    def _signal_and_wait(
        self, processes: list[ProcessRecord], number: signal.Signals, timeout_s: float, done: str
    ) -> list[ProcessRecord]:
        """Return the processes that are still running after the deadline."""
        for process in processes:
            send_signal(process.pid or 0, process.start_time, number)
        deadline = time.monotonic() + timeout_s
        left = processes
        while True:
            ended = [process for process in left if not process.is_running()]
            left = [process for process in left if process not in ended]
            for process in ended:
                self._report(f"{process.name} {done}")
            if not left or time.monotonic() > deadline:
                return left
            if self._pause(POLL_S) and number is signal.SIGTERM:
                return left

    def _update(self, processes: list[ProcessRecord]) -> None:
        self.directory.write(self.record().replacing(processes))


def _check_ports(processes: list[ProcessRecord]) -> None:
    wanted: list[tuple[int, str, str]] = []
    for process in processes:
        option = {Role.ZOOKEEPER: "--zookeeper-port", Role.CONSOLE: "--console-port"}.get(process.role, "--base-port")
        wanted.append((process.port, process.name, option))
        if process.http_port is not None:
            wanted.append((process.http_port, f"HTTP of {process.name}", "--http-base-port"))
    check_ports_are_free(HOST, wanted)


def _is_console(process: ProcessRecord) -> bool:
    return process.role is Role.CONSOLE


def _with_free_console_port(cluster: ClusterRecord) -> ClusterRecord:
    """Return the cluster with another port for the console, if its usual one is taken: nobody depends on it."""
    console = cluster.console
    if console is None or console.is_running() or is_free(HOST, console.port):
        return cluster
    taken = {port for each in cluster.processes for port in (each.port, each.http_port) if port is not None}
    return cluster.replacing([msgspec.structs.replace(console, port=free_port(HOST, taken))])


def _check_reachable(connect: str) -> None:
    """Fail at once if ZooKeeper does not answer; otherwise each broker would fail, and late."""
    if not any(is_accepting(host, port, CONNECT_TIMEOUT_S) for host, port in zookeeper_servers(connect)):
        raise ClusterError(f"No ZooKeeper answers at {connect}. Nothing was started.")
