"""The commands as functions of this process: what they print, and their exit codes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from tests.client.clusters import Bench
from tests.kit.waiting import until

from ottla.client.cli.main import main
from ottla.client.cli.terminal.options import default_directory, directory_arguments
from ottla.client.cli.terminal.output import print_table
from ottla.client.cli.terminal.progress import progress, with_progress

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs a command line and returns exit code, standard output and standard error."""

    def run_command(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["ottla", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, printed.out, printed.err

    return run_command


def objects(printed: str) -> list[dict[str, Any]]:
    """Return the lines of an output as JSON."""
    return [json.loads(line) for line in printed.splitlines()]


def test_a_detached_cluster_is_shown_and_stopped(bench: Bench, run: Run) -> None:
    """The way of a user: up, status, up once more, down, status."""
    directory = ("--dir", str(bench.path))

    code, printed, said = run(*bench.arguments(2), "--detach", "-X", "num.partitions=3")
    assert code == 0, said
    statuses = objects(run("status", *directory, "--format", "json")[1])
    addresses = ",".join(f"127.0.0.1:{status['port']}" for status in statuses)
    assert f"bootstrap servers: {addresses}\n" in printed
    assert f"data and logs:     {bench.path}\n" in printed
    assert f"Stop with: ottla down --dir {bench.path}" in said
    assert "num.partitions=3\n" in (bench.path / "broker-1" / "server.properties").read_text()

    code, printed, said = run(*bench.arguments(2))
    assert (code, "Everything is already running." in said) == (0, True)
    assert printed.count("running") == 2

    code, printed, said = run("down", *directory)
    assert (code, printed) == (0, "")
    assert sorted(said.splitlines()) == ["broker 1 stopped", "broker 2 stopped"]

    code, printed, _ = run("status", *directory)
    assert (code, printed.count("stopped")) == (1, 2)
    assert "No process of the cluster" in run("down", *directory)[2]


def test_fewer_brokers_are_refused(bench: Bench, run: Run) -> None:
    """The message says that nothing is removed; the cluster runs on."""
    run(*bench.arguments(2), "--detach")

    code, _, said = run(*bench.arguments(1))

    assert code == 1
    assert "Error: This cluster has 2 brokers. None is removed" in said
    assert run("status", "--dir", str(bench.path))[0] == 0


def test_status_is_a_list_of_objects(bench: Bench, run: Run) -> None:
    """Each has exactly the fields that scripts may rely on; with a dead process the exit code is 1."""
    run(*bench.arguments(2), "--detach")
    code, printed, _ = run("status", "--dir", str(bench.path), "--format", "json")

    statuses = objects(printed)
    assert code == 0
    process = ["role", "id", "pid", "host", "port", "http_port", "state"]
    health = ["is_controller", "leaders", "under_replicated"]
    assert [list(status) for status in statuses] == [process + health] * 2
    assert [(each["role"], each["id"], each["host"], each["state"]) for each in statuses] == [
        ("broker", 1, "127.0.0.1", "running"),
        ("broker", 2, "127.0.0.1", "running"),
    ]
    assert [tuple(each[name] for name in health) for each in statuses] == [(True, 5, 2)] * 2

    os.kill(statuses[0]["pid"], signal.SIGKILL)
    until(lambda: run("status", "--dir", str(bench.path), "--format", "json")[0] == 1)
    died, other = objects(run("status", "--dir", str(bench.path), "--format", "json")[1])
    assert died == {**statuses[0], "pid": None, "state": "died", **dict.fromkeys(health)}
    assert other == statuses[1]


def test_a_port_that_is_taken_is_named(bench: Bench, run: Run) -> None:
    """Nothing is started, and the message says which option to use."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        code, _, said = run(*bench.arguments(1), "--base-port", str(port))

    assert code == 1
    assert f"Error: Port {port} for broker 1 is in use." in said
    assert "--base-port" in said
    assert not (bench.path / "cluster.json").exists()


def test_a_broker_that_fails_is_an_error_without_a_traceback(bench: Bench, run: Run) -> None:
    """The end of its log is in the message."""
    code, _, said = run(*bench.arguments(1), "-X", "fake=fails")

    assert code == 1
    assert "Error: broker 1 ended before it was ready (exit code 3)." in said
    assert "    the fake broker fails, as it was told\n" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("up", "-X", "nothing"), '"nothing" is not key=value'),
        (("up", "--brokers", "0"), "--brokers"),
        (("up", "--zookeeper", "a:b"), '"a:b" is not HOST:PORT'),
        (("up", "--zookeeper", "a:1", "--zookeeper-port", "1"), "use only one of them"),
        (("status", "--format", "xml"), "--format"),
        (("sideways",), "sideways"),
    ],
)
def test_a_wrong_command_line_has_exit_code_2(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    """And a message that names what is wrong."""
    monkeypatch.setenv("OTTLA_DIR", str(tmp_path))
    code, printed, said = run(*arguments)

    assert (code, printed) == (2, "")
    assert message in said


@pytest.mark.parametrize("command", ["down", "status"])
def test_a_directory_without_a_cluster_is_an_error(run: Run, tmp_path: Path, command: str) -> None:
    """The message says how to start one, and the directory is not made."""
    missing = tmp_path / "missing"
    code, _, said = run(command, "--dir", str(missing))

    assert (code, said) == (1, f"Error: There is no cluster in {missing}. Start one with: ottla up --dir {missing}\n")
    assert not missing.exists()


@pytest.mark.parametrize("command", ["up", "down", "status"])
def test_help_has_examples(run: Run, command: str) -> None:
    """Every command shows how it is used, and no option of the tests."""
    code, printed, _ = run(command, "--help")

    assert code == 0
    assert f"Examples:\n    ottla {command}" in printed
    assert "--broker-command" not in printed


def test_the_version_is_that_of_the_package(run: Run) -> None:
    """It needs no command."""
    assert run("--version")[1].startswith("ottla ")


def test_the_default_directory_is_the_same_from_everywhere() -> None:
    """It is the user's, not the one that the user stands in."""
    assert default_directory({"XDG_DATA_HOME": "/data"}) == Path("/data/ottla")
    assert default_directory({}).is_absolute()
    assert directory_arguments(None) == ""
    assert directory_arguments(Path("/a b")) == " --dir '/a b'"


def test_a_table_on_a_terminal_has_the_same_cells(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Plain where it is piped, in colour where somebody looks."""
    print_table(("A", "LONG"), [("first", "1"), ("2", "second")], {"second": "red"})
    plain = capsys.readouterr().out
    assert plain == "A      LONG\nfirst  1\n2      second\n"

    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    print_table(("A", "LONG"), [("first", "1"), ("2", "second")], {"second": "red"})
    shown = capsys.readouterr().out
    assert [line.split() for line in shown.splitlines()] == [line.split() for line in plain.splitlines()]


LAG = ("TOPIC", "PARTITION", "LAG", "HOST", "CLIENT-ID")
LAG_ROWS = [("orders", "0", "5", "-", "a-client-with-a-long-name"), ("orders", "1", "0", "-", "another-client")]
CHECKS = ("STATUS", "FOUND")
CHECK_ROWS = [("ok", "/var/lib/ottla/broker-1/data-of-the-broker: 70 GiB of 252 GiB free"), ("BROKEN", "no answer")]


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (140, [LAG, *LAG_ROWS]),
        # A column without content goes first.
        (52, [(*LAG[:3], LAG[4]), *((*row[:3], row[4]) for row in LAG_ROWS)]),
        # Then what the command can spare.
        (40, [LAG[:3], *(row[:3] for row in LAG_ROWS)]),
    ],
)
def test_a_narrow_terminal_shows_the_columns_that_matter(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int, shown: list[tuple[str, ...]]
) -> None:
    """Standard error says what a wider one would show."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(width))

    print_table(LAG, LAG_ROWS, {}, spare=("CLIENT-ID",))

    printed = capsys.readouterr()
    lines = click.unstyle(printed.out).splitlines()
    assert [tuple(line.split()) for line in lines] == shown
    assert max(map(len, lines)) <= width
    assert printed.err == ("A wider terminal also shows CLIENT-ID.\n" if width == 40 else "")


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_no_cell_is_cut_however_narrow_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int
) -> None:
    """Text in the last column is wrapped between words; a table that cannot be narrower has a line for each cell."""
    headings = [f"HEADING-{number}" for number in range(12)]
    rows = [[f"{row}-{number}-" + "x" * 10 for number in range(12)] for row in range(3)]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(width))

    print_table(headings, rows, {})
    blocks = click.unstyle(capsys.readouterr().out).split("\n\n")
    assert [[tuple(line.split()) for line in block.splitlines()] for block in blocks] == [
        list(zip(headings, row, strict=True)) for row in rows
    ]

    print_table(CHECKS, CHECK_ROWS, {})
    lines = click.unstyle(capsys.readouterr().out).splitlines()
    assert " ".join(" ".join(lines).split()) == " ".join(word for row in (CHECKS, *CHECK_ROWS) for word in row)
    assert max(map(len, lines)) <= width
    assert len(lines) == (4 if width == 60 else 3)


def test_progress_is_shown_at_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On standard error, where it does not get among the results; the items are the same."""
    assert list(with_progress([1, 2], "working")) == [1, 2]
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    assert list(with_progress([1, 2], "working")) == [1, 2]
    shown = capsys.readouterr()
    assert (shown.out, "working" in shown.err) == ("", True)
    with progress("counting") as tell:
        tell(12_345)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "counting" in shown.err
    assert "12,345" in shown.err


def test_help_imports_nothing_heavy() -> None:
    """The command answers at once because a command's modules come in when it runs."""
    code = "import sys, ottla.client.cli.main; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=120)

    assert {"rich", "msgspec", "asyncio", "pyspark", "kazoo"}.isdisjoint(loaded.stdout.split())


@pytest.mark.parametrize(
    ("redirection", "code", "said"),
    [
        (">/dev/full", 1, "Error: The output cannot be written: No space left on device.\n"),
        (">&-", 0, ""),
    ],
)
def test_output_that_nobody_can_take_is_no_traceback(redirection: str, code: int, said: str) -> None:
    """A full disk is an error in one line. Who closes the output does not want to see it."""
    command = f'exec "$0" -m ottla.client.cli --help {redirection}'
    ended = subprocess.run(
        ["sh", "-c", command, sys.executable], stderr=subprocess.PIPE, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stderr) == (code, said)
