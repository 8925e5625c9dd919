"""Clusters of fake brokers, for the tests of what starts and stops them."""

from __future__ import annotations

import os
import select
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla.client.local_cluster.cluster_dir import ClusterDir
from ottla.client.local_cluster.local_cluster import LocalCluster
from ottla.client.local_cluster.plan import ClusterOptions

FAKE_BROKER = (sys.executable, "-S", "-E", str(Path(__file__).parent / "fake_broker.py"))
DEADLINE_S = 30.0


class Bench:
    """A directory for a cluster, and a listener that passes for its ZooKeeper."""

    def __init__(self, path: Path, zookeeper: str) -> None:
        self.path = path
        self.zookeeper = zookeeper
        self.reports: list[str] = []

    def cluster(
        self,
        *,
        pause: Callable[[float], bool] | None = None,
        start_timeout_s: float = DEADLINE_S,
        stop_timeout_s: float = DEADLINE_S,
    ) -> LocalCluster:
        """Return the cluster in the directory, as another process would see it."""
        return LocalCluster(
            ClusterDir(self.path),
            broker_command=FAKE_BROKER,
            report=self.reports.append,
            pause=pause or pause_for,
            start_timeout_s=start_timeout_s,
            stop_timeout_s=stop_timeout_s,
        )

    def options(self, brokers: int | None = None, *overrides: str) -> ClusterOptions:
        """Return options with ports that are free."""
        return ClusterOptions(
            brokers=brokers, base_port=0, http_base_port=0, zookeeper=self.zookeeper, overrides=tuple(overrides)
        )

    def arguments(self, brokers: int, *more: str) -> list[str]:
        """Return the same as arguments of `ottla up`."""
        ports = ["--base-port", "0", "--http-base-port", "0", "--zookeeper", self.zookeeper]
        command = ["--broker-command", shlex.join(FAKE_BROKER)]
        return ["up", "--dir", str(self.path), "--brokers", str(brokers), "--no-console", *ports, *command, *more]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A bench on which nothing is left running."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        bench = Bench(tmp_path / "cluster", f"127.0.0.1:{listener.getsockname()[1]}/chroot")
        try:
            yield bench
        finally:
            if ClusterDir(bench.path).read() is not None:
                bench.cluster(stop_timeout_s=0).stop()


@contextmanager
def ottla(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run the command line as a process, which is gone at the end of the block."""
    command = [sys.executable, "-m", "ottla.client.cli", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def read_until(process: subprocess.Popen[bytes], text: str) -> str:
    """Return what a process writes to standard error up to and with the text."""
    assert process.stderr is not None
    said = b""
    deadline = time.monotonic() + DEADLINE_S
    while text.encode() not in said:
        readable, _, _ = select.select([process.stderr], [], [], max(0.0, deadline - time.monotonic()))
        chunk = os.read(process.stderr.fileno(), 4096) if readable else b""
        assert chunk, f"{text!r} did not come: {said.decode()}"
        said += chunk
    return said.decode()


def pause_for(seconds: float) -> bool:
    """Wait as a command does to which no signal comes."""
    select.select([], [], [], seconds)
    return False
