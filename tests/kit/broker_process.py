"""Real brokers for tests: `python -m ottla.broker` on the loopback interface, with a log directory that is thrown away.

def test_something(broker: BrokerProcess) -> None:        the fixture: one broker that the tests of a run share
    produce(broker.bootstrap, topic())

def test_a_restart(make_broker: MakeBroker) -> None:      brokers of a test's own, each on a ZooKeeper path of its own
    broker = make_broker("log.segment.bytes=1048576")
    broker.kill()
    broker.start()
"""

from __future__ import annotations

import os
import re
import signal
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from tests.kit.guarded_process import GuardedProcess
from tests.kit.hosts import LOOPBACK, Host
from tests.kit.waiting import until
from tests.kit.zookeeper import ZooKeeper, ZooKeeperServer

START_TIMEOUT_S = 90
START_ATTEMPTS = 3

_READY = re.compile(rb"\[KafkaServer id=\d+\] started")
_PORT_TAKEN = b"address already in use"
# Many records of tests have timestamps of long ago, and are not to be deleted meanwhile: not by the first check after
# the start either.
NO_RETENTION = ("log.retention.check.interval.ms=86400000", "log.initial.task.delay.ms=86400000")
# What suits many small brokers on one machine; the log directory may be on a small disk.
_OPTIONS = (
    "num.partitions=1",
    "num.io.threads=4",
    "offsets.topic.replication.factor=1",
    "offsets.topic.num.partitions=3",
    "transaction.state.log.replication.factor=1",
    "transaction.state.log.min.isr=1",
    "group.initial.rebalance.delay.ms=0",
    "ottla.log.min.free.bytes=0",
    "ottla.log.min.free.percent=0",
    *NO_RETENTION,
    # Some brokers have addresses of their own, which are not loopback.
    "ottla.http.open=true",
)


class BrokerStartError(Exception):
    """The broker ended, or was not ready in time; the message has its exit code and what it said last."""

    def __init__(self, exit_code: int | None, output: str) -> None:
        self.exit_code = exit_code
        self.output = output
        super().__init__(f"exit code {exit_code}:\n{output[-4000:]}")


class BrokerProcess:
    """A broker that keeps its ports and its data over restarts; a `with` starts it, and kills it in the end."""

    # What it says when it is ready.
    ready = _READY

    def __init__(
        self,
        folder: Path,
        zookeeper: str,
        *overrides: str,
        broker_id: int = 1,
        where: Host = LOOPBACK,
        protocol: str = "PLAINTEXT",
    ) -> None:
        self.folder = folder
        self.zookeeper = zookeeper
        self.broker_id = broker_id
        self.where = where
        self.protocol = protocol
        self.host = where.address
        self.log_dir = folder / "data"
        self.log = folder / "broker.log"
        self._overrides = overrides
        self._process: GuardedProcess | None = None
        self._choose_ports()

    def __enter__(self) -> Self:
        self.start_on_free_ports()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def __repr__(self) -> str:
        return f"<BrokerProcess {self.broker_id} {self.bootstrap} pid={self._process and self._process.pid}>"

    @property
    def bootstrap(self) -> str:
        """The address for clients."""
        return f"{self.host}:{self.port}"

    @property
    def http(self) -> str:
        """The address of metrics and health."""
        return f"http://{self.host}:{self.http_port}"

    @property
    def pid(self) -> int:
        """The pid of the running broker."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it was started and not ended since."""
        return self._process is not None

    @property
    def has_ended(self) -> bool:
        """Whether it was started and has ended by itself since."""
        return self._process is not None and self._process.poll() is not None

    def partition_dir(self, topic: str, partition: int = 0) -> Path:
        """Return the folder of a partition's log."""
        return self.log_dir / f"{topic}-{partition}"

    def output(self) -> str:
        """Return what all its processes have said so far."""
        return self.log.read_text(errors="replace")

    def start(self) -> None:
        """Start it and wait until it says that it is ready; BrokerStartError if it does not."""
        assert self._process is None
        self.folder.mkdir(parents=True, exist_ok=True)
        said_before = self.log.stat().st_size if self.log.exists() else 0
        self._process = GuardedProcess(self.where.command(self._command()), self.log, clean_environment())
        if not self._process.comes_up(lambda: self.ready.search(self._said_since(said_before)), START_TIMEOUT_S):
            exit_code = self._process.poll()
            self.kill()
            raise BrokerStartError(exit_code, self._said_since(said_before).decode(errors="replace"))

    def start_on_free_ports(self) -> None:
        """Start it, on other ports if somebody took those that were free when they were chosen."""
        for _ in range(START_ATTEMPTS - 1):
            try:
                return self.start()
            except BrokerStartError as error:
                if _PORT_TAKEN.decode() not in error.output.lower():
                    raise
                self._choose_ports()
        return self.start()

    def stop(self) -> int:
        """Have it stop cleanly, with SIGTERM; return its exit code."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it with SIGKILL, if it runs. Its guardian closes its session with ZooKeeper."""
        if self._process is not None:
            self._end(signal.SIGKILL)

    def vanish(self) -> None:
        """End it and its guardian, as a machine that loses power does: its session stays until it times out."""
        if self._process is None:
            return
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        for pid in map(int, children.read_text().split()):
            os.kill(pid, signal.SIGKILL)
        self.kill()

    def pause(self) -> None:
        """Stop it from running, and wait until it does not: a thread of it may still be answering."""
        os.kill(self.pid, signal.SIGSTOP)
        until(lambda: process_state(self.pid) == "T", f"{self!r} is stopped")

    def resume(self) -> None:
        """Let it run on."""
        os.kill(self.pid, signal.SIGCONT)

    def restart(self) -> None:
        """Stop it cleanly and start it again."""
        assert self.stop() == 0
        self.start()

    def _end(self, number: signal.Signals) -> int:
        assert self._process is not None
        ended, self._process = self._process, None
        return ended.end(number)

    def _choose_ports(self) -> None:
        self.port = self.where.free_port()
        self.http_port = self.where.free_port({self.port})

    def _said_since(self, position: int) -> bytes:
        with self.log.open("rb") as log:
            log.seek(position)
            return log.read()

    def _command(self) -> list[str]:
        options = (
            *_OPTIONS,
            f"broker.id={self.broker_id}",
            f"listeners={self.protocol}://{self.bootstrap}",
            *([] if self.protocol == "PLAINTEXT" else [f"security.inter.broker.protocol={self.protocol}"]),
            f"ottla.http.listener={self.host}:{self.http_port}",
            f"log.dirs={self.log_dir}",
            f"zookeeper.connect={self.zookeeper}",
            *self._overrides,
        )
        overrides = [part for option in options for part in ("--override", option)]
        return [*self._program(), *overrides]

    def _program(self) -> list[str]:
        return [sys.executable, "-m", "ottla.broker"]


MakeBroker = Callable[..., BrokerProcess]


def topic_name() -> str:
    """Return a name that no other topic has."""
    return f"topic-{uuid.uuid4().hex}"


def clean_environment() -> dict[str, str]:
    """Return our environment without options of a broker, for processes that read them from there."""
    return {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}


@pytest.fixture(scope="session")
def broker(zookeeper_server: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """The broker that tests share; they use topics of their own, and leave it running with the options that it has."""
    with BrokerProcess(tmp_path_factory.mktemp("broker"), ZooKeeper(zookeeper_server).connect) as shared:
        yield shared


@pytest.fixture
def topic() -> str:
    """A name that no other topic has."""
    return topic_name()


@pytest.fixture
def make_broker(zookeeper_server: ZooKeeperServer, tmp_path: Path) -> Iterator[MakeBroker]:
    """Make and start brokers of the test's own; each is alone in its cluster unless `zookeeper` is given."""
    numbers = count()

    def make(*overrides: str, zookeeper: str | None = None, broker_id: int = 1) -> BrokerProcess:
        connect = zookeeper or ZooKeeper(zookeeper_server).connect
        made = BrokerProcess(tmp_path / f"broker-{next(numbers)}", connect, *overrides, broker_id=broker_id)
        return running.enter_context(made)

    with ExitStack() as running:
        yield make


def process_state(pid: int) -> str:
    """Return the letter that the system has for the state of a process; T is stopped, nothing is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
