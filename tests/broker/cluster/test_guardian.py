"""The guardian closes the session of a dead broker, and of no other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

import pytest
from tests.broker.cluster.guarded_session import SESSION_TIMEOUT_MS
from tests.broker.sessions import Connect
from tests.kit.waiting import until
from tests.kit.zookeeper import ZooKeeper as Ensemble

from ottla.broker.cluster import guardian_process
from ottla.broker.cluster.zookeeper import ZooKeeper

NODE = "/alive"
# A session that only times out lasts twice as long.
BEFORE_THE_TIMEOUT_S = SESSION_TIMEOUT_MS / 1000 / 2


class Guarded:
    """A process with a session and a guardian."""

    def __init__(self, connect: str, node: str = NODE, options: Mapping[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.broker.cluster.guarded_session", connect, node),
                *(f"{name}={value}" for name, value in (options or {}).items()),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.guardian_pid = int(self._answer().removeprefix("ready "))

    def ask(self, what: str) -> str:
        """Have it do something; return what it says."""
        assert self.process.stdin is not None
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        return self._answer()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process, not to its guardian."""
        self.process.send_signal(number)

    def _answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


Start = Callable[..., Guarded]


@pytest.fixture
def start(zookeeper: Ensemble) -> Iterator[Start]:
    """Starts processes with a guardian each; they are killed in the end."""
    started: list[Guarded] = []

    def start(node: str = NODE) -> Guarded:
        started.append(Guarded(zookeeper.connect, node))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.communicate()


def is_running(pid: int) -> bool:
    """Whether there is a process with this pid that has not ended."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(session: ZooKeeper, node: str = NODE) -> bool:
    """Wait until the node is gone, for less than the session's timeout."""
    return until(lambda: session.exists(node) is None, "the node is gone", seconds=BEFORE_THE_TIMEOUT_S)


def test_the_nodes_of_a_killed_process_disappear_before_its_session_times_out(start: Start, connect: Connect) -> None:
    """Nobody waits for the timeout."""
    guarded = start()
    guarded.signal(signal.SIGKILL)

    assert gone(connect())
    assert until(lambda: not is_running(guarded.guardian_pid), "the guardian has left")


def test_a_paused_process_keeps_its_session(start: Start, connect: Connect) -> None:
    """Not running for a while is not death."""
    guarded, other = start(), start("/other")
    guarded.signal(signal.SIGSTOP)
    other.signal(signal.SIGKILL)

    # The guardian of the other one has acted in the meantime; this one must not have.
    observer = connect()
    assert gone(observer, "/other")
    assert observer.exists(NODE) is not None
    assert is_running(guarded.guardian_pid)
    guarded.signal(signal.SIGCONT)
    assert guarded.ask("touch") == "touched"


def test_signals_do_not_move_the_guardian(start: Start, connect: Connect) -> None:
    """Ctrl-C and a stop of the whole group are for the broker."""
    guarded = start()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(guarded.guardian_pid, number)

    assert guarded.ask("touch") == "touched"
    assert os.getpgid(guarded.guardian_pid) != os.getpgid(guarded.process.pid)
    guarded.signal(signal.SIGKILL)
    assert gone(connect())


def test_a_child_that_outlives_its_parent_does_not_keep_the_session(start: Start, connect: Connect) -> None:
    """The child has the pipe to the guardian, too, but it is not the broker."""
    guarded = start()
    child = int(guarded.ask("fork"))
    try:
        guarded.signal(signal.SIGKILL)

        assert gone(connect())
        assert is_running(child)
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_child_that_dies_does_not_end_the_session(start: Start, connect: Connect) -> None:
    """Only the process that started the guardian counts."""
    guarded, other = start(), start("/other")
    child = int(guarded.ask("fork"))
    os.kill(child, signal.SIGKILL)
    other.signal(signal.SIGKILL)

    assert gone(observer := connect(), "/other")
    assert observer.exists(NODE) is not None
    assert guarded.ask("touch") == "touched"


def test_a_process_that_closes_the_pipe_and_lives_keeps_its_session(start: Start, connect: Connect) -> None:
    """The end of the pipe comes a little before the end of a process, and is no proof of it."""
    guarded, other = start(), start("/other")
    assert guarded.ask("let go") == "let go"
    other.signal(signal.SIGKILL)

    assert gone(observer := connect(), "/other")
    assert observer.exists(NODE) is not None
    assert is_running(guarded.guardian_pid)
    guarded.signal(signal.SIGKILL)
    assert gone(observer)


def test_the_guardian_leaves_when_the_session_is_closed(start: Start, connect: Connect) -> None:
    """After a clean stop nothing is left to do."""
    guarded = start()
    guarded.ask("close")

    assert guarded.process.wait(60) == 0
    assert connect().exists(NODE) is None
    assert not is_running(guarded.guardian_pid)


def test_the_newest_session_is_the_one_that_is_closed(start: Start, connect: Connect) -> None:
    """A session that replaces an expired one is handed over, too."""
    guarded = start()
    assert guarded.ask("renew") == "renewed"
    guarded.signal(signal.SIGKILL)

    assert gone(connect())


def test_a_new_process_with_the_same_node_keeps_it(start: Start, connect: Connect) -> None:
    """The guardian of the dead process closes the dead session, not that of the successor."""
    first = start()
    first.signal(signal.SIGKILL)
    assert gone(observer := connect())
    second = start()

    until(lambda: not is_running(first.guardian_pid), "the first guardian has left")
    assert observer.exists(NODE) is not None
    assert second.ask("touch") == "touched"


def test_a_line_that_is_torn_does_not_count() -> None:
    """A broker that dies in the middle of a line leaves the line before it in force."""
    reading_end, writing_end = os.pipe()
    os.write(writing_end, b"session first\nsession sec")
    os.close(writing_end)
    script = "import guardian_process; print(guardian_process.last_order(-1)[0].decode())"
    folder = os.path.dirname(guardian_process.__file__)
    try:
        answer = subprocess.run(
            [sys.executable, "-c", script], stdin=reading_end, cwd=folder, capture_output=True, text=True, check=True
        )
    finally:
        with suppress(OSError):
            os.close(reading_end)

    assert answer.stdout == "session first\n"


def test_it_imports_little_while_it_waits() -> None:
    """It lives as long as its broker, so it imports what it needs to close a session when it has to."""
    script = "import sys; sys.path.insert(0, sys.argv[1]); import guardian_process; print(*sys.modules)"
    folder = os.path.dirname(guardian_process.__file__)
    command = [sys.executable, "-I", "-S", "-c", script, folder]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()

    assert "guardian_process" in loaded
    assert {"enum", "re", "socket", "ssl", "tempfile", "typing"}.isdisjoint(loaded)
