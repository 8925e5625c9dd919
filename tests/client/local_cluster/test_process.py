"""Processes by their pids, and their logs."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from tests.kit.waiting import until

from ottla.client.local_cluster import process
from ottla.client.local_cluster.errors import ClusterError
from ottla.client.local_cluster.process import LogTail, ending, is_running, send_signal, spawn, start_time

SLEEPER = [sys.executable, "-S", "-E", "-c", "import signal; print('up', flush=True); signal.pause()"]


def test_a_process_is_known_by_its_start_time(tmp_path: Path) -> None:
    """It runs until it is killed, and only a signal for that very process reaches it."""
    pid = spawn(SLEEPER, tmp_path / "log", os.environ)
    try:
        started = start_time(pid)
        assert is_running(pid, started)
        assert not is_running(pid, "another time")
        assert os.getsid(pid) == pid

        send_signal(pid, "another time", signal.SIGKILL)
        assert is_running(pid, started)
    finally:
        send_signal(pid, start_time(pid), signal.SIGKILL)
    until(lambda: not is_running(pid, started))
    assert ending(pid) == "killed by SIGKILL"
    send_signal(pid, started, signal.SIGKILL)


def test_processes_are_found_without_proc() -> None:
    """Where there is no /proc, `ps` tells the same."""
    mine = process._start_time_ps(os.getpid())

    assert mine is not None
    assert mine == process._start_time_ps(os.getpid())
    assert process._start_time_ps(2**22 + 1) is None


def test_no_pid_is_no_process() -> None:
    """A record without a pid, and a pid that nobody has."""
    assert not is_running(None, None)
    assert start_time(2**22 + 1) is None
    assert ending(2**22 + 1) == "it is gone"


def test_a_program_that_is_not_there_is_a_clear_error(tmp_path: Path) -> None:
    """The message names the program."""
    with pytest.raises(ClusterError, match="Cannot start /no/such/program: No such file"):
        spawn(["/no/such/program"], tmp_path / "log", {})


def test_a_log_is_read_from_now_on(tmp_path: Path) -> None:
    """What an earlier run wrote does not count; what comes in two parts does."""
    path = tmp_path / "log"
    path.write_text("started\n")
    log = LogTail(path)

    assert not log.has(b"started")
    assert log.last_lines(3) == []
    with path.open("a") as file:
        file.write("one\ntwo\nsta")
        file.flush()
        assert not log.has(b"started")
        file.write("rted\n")
        file.flush()
    assert log.has(b"started")
    assert log.last_lines(2) == ["two", "started"]


def test_a_large_log_makes_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is kept beside the new one, once."""
    monkeypatch.setattr(process, "LOG_BYTES_MAX", 4)
    path = tmp_path / "log"
    path.write_text("12345")

    LogTail(path)

    assert not path.exists()
    assert (tmp_path / "log.1").read_text() == "12345"
