"""A real ZooKeeper for tests: one server for the whole run, and for each test a path of its own in it.

    def test_something(zookeeper: ZooKeeper) -> None:      the fixture: a fresh, empty chroot of the shared server
        start_broker("zookeeper.connect=" + zookeeper.connect)

A test that stops, kills or freezes its ZooKeeper makes a `ZooKeeperServer` of its own.
"""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from tests.kit.apache_kafka import UnavailableError, skip_or_fail
from tests.kit.guarded_process import GuardedProcess
from tests.kit.hosts import LOOPBACK, Host

from ottla.client.local_cluster.errors import ClusterError, JavaNotFoundError, ZooKeeperNotFoundError
from ottla.client.local_cluster.zookeeper import READY_TIMEOUT_S, ServerSecurity, command, is_serving, prepare

START_TIMEOUT_S = 60
START_ATTEMPTS = 3


class ZooKeeperServer:
    """A server in a folder, which keeps its data and its port over restarts; a `with` starts and kills it."""

    def __init__(
        self, folder: Path, port: int | None = None, where: Host = LOOPBACK, security: ServerSecurity | None = None
    ) -> None:
        """With `security`, it serves with TLS only, and clients may log in."""
        self.folder = folder
        self._security = security
        self.where = where
        self.host = where.address
        self.port = port or where.free_port()
        self._process: GuardedProcess | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def connect(self) -> str:
        """Return the connect string of the root."""
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int | None:
        """Return the pid of the server, if it runs."""
        return None if self._process is None else self._process.pid

    @property
    def log(self) -> Path:
        """Return the file with the server's output."""
        return self.folder / "zookeeper.log"

    def start(self) -> None:
        """Start it and wait until it serves clients."""
        prepare(self.folder, self.host, self.port, self._security)
        words = command(self.folder, fsync=False, security=self._security)
        self._process = GuardedProcess(self.where.command(words), self.log)
        if not self._process.comes_up(self._is_serving, START_TIMEOUT_S):
            self.kill()
            raise ClusterError(f"ZooKeeper did not start:\n{self.log.read_text()[-2000:]}")

    def stop(self) -> None:
        """Stop it with SIGTERM."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Stop it from running; a kill ends it all the same."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it run on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None, "ZooKeeper does not run"
        os.kill(self._process.pid, number)

    def _is_serving(self) -> bool:
        return self.where.call(lambda: is_serving(self.host, self.port, READY_TIMEOUT_S))

    def _end(self, number: signal.Signals) -> None:
        ended, self._process = self._process, None
        if ended is not None:
            ended.end(number)


@dataclass(frozen=True, slots=True)
class ZooKeeper:
    """A path of the shared server that no other test uses. It is not made yet: brokers make their chroot themselves."""

    server: ZooKeeperServer
    chroot: str = field(default_factory=lambda: f"/test-{uuid.uuid4().hex}")

    @property
    def connect(self) -> str:
        """Return the connect string, with the chroot."""
        return self.server.connect + self.chroot


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """The server that all tests share; do not stop it."""
    for attempt in range(START_ATTEMPTS):
        server = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"))
        try:
            server.start()
        except (JavaNotFoundError, ZooKeeperNotFoundError) as error:
            skip_or_fail(UnavailableError(str(error)))
        except ClusterError:
            # Somebody may have taken the port in the meantime.
            if attempt + 1 == START_ATTEMPTS:
                raise
            continue
        break
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture
def zookeeper(zookeeper_server: ZooKeeperServer) -> ZooKeeper:
    """A fresh chroot in the shared server."""
    return ZooKeeper(zookeeper_server)
