"""A cluster that `ottla up` has started, for experiments: its processes are those in its directory."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.faults.cluster import LAG_LIMIT_S, SESSION_TIMEOUT_S, Cluster
from tests.faults.cluster_state import ClusterState
from tests.kit.broker_process import BrokerProcess, clean_environment
from tests.kit.hosts import LOOPBACK
from tests.kit.waiting import DEADLINE_S

from ottla.client.local_cluster.cluster_dir import ClusterDir
from ottla.client.local_cluster.local_cluster import LocalCluster
from ottla.client.local_cluster.record import ProcessRecord

_OPTIONS = (
    f"zookeeper.session.timeout.ms={int(SESSION_TIMEOUT_S * 1000)}",
    "zookeeper.connection.timeout.ms=60000",
    f"replica.lag.time.max.ms={int(LAG_LIMIT_S * 1000)}",
    "auto.create.topics.enable=false",
    "offsets.topic.num.partitions=1",
    "ottla.log.min.free.bytes=0",
)


class UpBroker(BrokerProcess):
    """A broker of the cluster: where it is, and which process it is now."""

    def __init__(self, cluster: LocalCluster, broker_id: int) -> None:
        super().__init__(cluster.directory.path / f"broker-{broker_id}", "", broker_id=broker_id)
        self._cluster = cluster
        self.port = self.record.port

    @property
    def record(self) -> ProcessRecord:
        """What the directory says of it."""
        return next(each for each in self._cluster.record().brokers if each.id == self.broker_id)

    @property
    def pid(self) -> int:
        """The pid of the running broker."""
        assert self.record.pid is not None
        return self.record.pid

    @property
    def is_running(self) -> bool:
        """Whether its process is there."""
        return self.record.is_running()

    def kill(self) -> None:
        """End it with SIGKILL, if it runs."""
        if self.is_running:
            os.kill(self.pid, signal.SIGKILL)


class UpCluster(Cluster):
    """Three brokers with the defaults of `ottla up`; commands are run as a user does, as processes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.directory = folder / "cluster"
        self._local = LocalCluster(ClusterDir(self.directory), stop_timeout_s=10)

    def up(self, checkout: Path | None = None) -> None:
        """Start it, from another checkout of Ottla if one is given."""
        options = [part for option in _OPTIONS for part in ("-X", option)]
        ports = [part for name in ("base", "http-base", "zookeeper") for part in (f"--{name}-port", "0")]
        with self.command("up", "--detach", "--no-console", *ports, *options, checkout=checkout) as process:
            _, error = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0, error.decode()
        self.client_host = LOOPBACK
        self._state = ClusterState(self._local.record().zookeeper_connect, self.client_host)
        self.brokers = {number: UpBroker(self._local, number) for number in (1, 2, 3)}

    def close(self) -> None:
        """End everything, and leave the logs."""
        if self._state is not None:
            self._state.close()
        if ClusterDir(self.directory).read() is not None:
            self._local.stop()

    def pids(self) -> dict[int, int | None]:
        """Return which processes the brokers are; one that is stopped is none."""
        return {each.id: each.pid for each in self._local.record().brokers}

    @contextmanager
    def command(self, *words: str, checkout: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
        """Run a command of `ottla` on this cluster; it is gone at the end of the block."""
        environment = clean_environment()
        if checkout is not None:
            environment["PYTHONPATH"] = str(checkout / "src")
        line = [sys.executable, "-P", "-m", "ottla.client.cli", *words, "--dir", str(self.directory)]
        pipe = subprocess.PIPE
        with subprocess.Popen(line, stdout=pipe, stderr=pipe, env=environment) as process:
            try:
                yield process
            finally:
                process.kill()

    def rolling_restart(self, *options: str) -> tuple[int, str]:
        """Restart all brokers; return the exit code and what was said."""
        with self.command("cluster", "restart", "--rolling", *options) as process:
            _, said = process.communicate(timeout=DEADLINE_S)
            return process.returncode, said.decode()


def said_until(process: subprocess.Popen[bytes], text: str) -> str:
    """Return what a process says up to and with a text, and no further."""
    assert process.stderr is not None
    said = b""
    deadline = time.monotonic() + DEADLINE_S
    while text.encode() not in said:
        readable, _, _ = select.select([process.stderr], [], [], max(0.0, deadline - time.monotonic()))
        # One byte at a time: the rest is for `communicate`.
        byte = os.read(process.stderr.fileno(), 1) if readable else b""
        assert byte, f"{text!r} did not come: {said.decode()}"
        said += byte
    return said.decode()
