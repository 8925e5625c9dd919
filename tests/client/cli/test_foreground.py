"""`ottla up` as a process of its own: in the foreground, and what it leaves behind."""

from __future__ import annotations

import json
import os
import signal
import sys

import pytest
from tests.client.clusters import DEADLINE_S, Bench, ottla, read_until
from tests.kit.waiting import until

from ottla.client.cli.terminal.signals import StopSignals
from ottla.client.local_cluster.launcher import BROKER_COMMAND

READY = "Press Ctrl-C to stop."


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_everything(bench: Bench, number: signal.Signals) -> None:
    """Ctrl-C, SIGTERM and the end of the terminal: all brokers are gone when the command has ended."""
    with ottla(*bench.arguments(2)) as up:
        read_until(up, READY)
        processes = bench.cluster().record().processes
        assert all(process.is_running() for process in processes)

        up.send_signal(number)

        said = read_until(up, "broker 2 stopped") if number is signal.SIGINT else ""
        assert "Traceback" not in said
        assert up.wait(DEADLINE_S) == 0
    assert not any(process.is_running() for process in processes)


def test_a_signal_ends_a_start_that_takes_long(bench: Bench) -> None:
    """What was started already is stopped."""
    with ottla(*bench.arguments(1, "-X", "fake=silent")) as up:
        until((bench.path / "cluster.json").exists)

        up.send_signal(signal.SIGTERM)

        read_until(up, "Stopped before the cluster was ready.")
        assert up.wait(DEADLINE_S) == 1
    assert not bench.cluster().is_running()


def test_a_second_signal_kills(bench: Bench) -> None:
    """Whoever does not want to wait for a broker that does not stop presses Ctrl-C again."""
    with ottla(*bench.arguments(1, "-X", "fake=stubborn")) as up:
        read_until(up, READY)
        up.send_signal(signal.SIGINT)
        read_until(up, "Ctrl-C again")

        up.send_signal(signal.SIGINT)

        read_until(up, "broker 1 killed")
        assert up.wait(DEADLINE_S) == 0


def test_a_death_is_told_and_the_others_keep_running(bench: Bench) -> None:
    """The message has the way to start it again, which the command in the foreground then watches too."""
    with ottla(*bench.arguments(2)) as up:
        read_until(up, READY)
        first, second = bench.cluster().record().processes
        assert first.pid is not None
        os.kill(first.pid, signal.SIGKILL)

        said = read_until(up, "to start it:")
        assert f"broker 1 (pid {first.pid}) died: killed by SIGKILL. The others keep running." in said
        assert second.is_running()

        with ottla(*bench.arguments(2, "--detach")) as again:
            assert again.wait(DEADLINE_S) == 0
        restarted = bench.cluster().record().processes[0]
        assert restarted.is_running()

        up.send_signal(signal.SIGINT)
        assert up.wait(DEADLINE_S) == 0
    assert not restarted.is_running()
    assert not second.is_running()


def test_a_cluster_that_another_command_stops_ends_the_foreground(bench: Bench) -> None:
    """That is no failure."""
    with ottla(*bench.arguments(2)) as up:
        read_until(up, READY)
        with ottla("down", "--dir", str(bench.path)) as down:
            assert down.wait(DEADLINE_S) == 0

        said = read_until(up, "No process is left.")
        assert said.count("was stopped by another command") == 2
        assert up.wait(DEADLINE_S) == 0


def test_the_foreground_fails_when_every_process_has_died(bench: Bench) -> None:
    """There is nothing left to wait for."""
    with ottla(*bench.arguments(1)) as up:
        read_until(up, READY)
        pid = bench.cluster().record().processes[0].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

        assert up.wait(DEADLINE_S) == 1


def test_a_detached_cluster_survives_its_command(bench: Bench) -> None:
    """Also when the whole process group of the command is killed."""
    with ottla(*bench.arguments(2, "--detach")) as up:
        assert up.wait(DEADLINE_S) == 0

    with ottla("status", "--dir", str(bench.path), "--format", "json") as status:
        printed, _ = status.communicate(timeout=DEADLINE_S)
    assert status.returncode == 0
    processes = [json.loads(line) for line in printed.splitlines()]
    assert [each["state"] for each in processes] == ["running", "running"]
    assert all(os.getsid(each["pid"]) == each["pid"] for each in processes)


def test_a_detached_cluster_survives_a_reader_that_closes_the_pipe(bench: Bench) -> None:
    """As in `ottla up --detach | head -1`."""
    with ottla(*bench.arguments(2, "--detach")) as up:
        assert up.stdout is not None
        up.stdout.close()
        assert up.stderr is not None
        up.stderr.close()
        up.wait(DEADLINE_S)

    assert all(each.is_running() for each in bench.cluster().record().processes)


def test_a_signal_that_was_ignored_stays_ignored() -> None:
    """A command under nohup does not stop when the terminal ends; the others are waited for, and then as before."""
    # An event loop that another test has run may have left its handler.
    before = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGTERM)}
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with StopSignals() as signals:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not signals.wait(0)
            os.kill(os.getpid(), signal.SIGTERM)
            assert signals.wait(DEADLINE_S)
            assert not signals.wait(0)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_the_real_broker_is_started_by_its_module_name() -> None:
    """Never by a path, and never with the user's folder before the installed packages."""
    assert [sys.executable, "-P", "-m", "ottla.broker"] == list(BROKER_COMMAND)
