"""What users may write for times, formats and options, and that help is there for all of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.client.cli.conftest import Ottla
from tests.kit.broker_process import BrokerProcess
from tests.kit.examples import examples

from ottla.client.cli import main
from ottla.client.cli.records import offsets
from ottla.client.cli.records.reading import ReadRecord
from ottla.client.cli.records.record_format import as_json, compiled
from ottla.client.cli.terminal import completion, errors, nouns, output, times
from ottla.client.cli.terminal.errors import CommandError
from ottla.client.cli.terminal.target import Target, key_values, options_of_this_machine
from ottla.client.local_cluster.cluster_dir import ClusterDir
from ottla.client.local_cluster.process import start_time
from ottla.client.local_cluster.record import ClusterRecord, ProcessRecord, Role
from ottla.client.net.settings import ClientSettings
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.record import Record

READ = ReadRecord(TopicPartition("t", 3), Record(7, 1_000, b"k", None, [("h", b"x"), ("n", None)]))


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("0", 0),
        ("1700000000000", 1_700_000_000_000),
        ("-5m", 700_000),
        ("-2s", 998_000),
        ("-9d", 0),
        ("1970-01-01T00:00:01Z", 1_000),
        ("1970-01-01T01:00:00.5+01:00", 500),
        ("1969-12-31T23:59:59.999Z", 0),
    ],
)
def test_times_are_read_in_each_way(text: str, expected_ms: int) -> None:
    """Epoch, ago, ISO 8601."""
    assert offsets.time_ms(text, now_ms=1_000_000) == expected_ms


@pytest.mark.parametrize("text", ["", "soon", "-5", "-5y", "5m", "1e3", "99999999999999999999", "2026-13-01"])
def test_what_is_no_time_is_refused(text: str) -> None:
    """With exit code 2."""
    with pytest.raises(CommandError) as refused:
        offsets.time_ms(text)
    assert refused.value.exit_code == 2


def test_time_spans_have_a_unit() -> None:
    """A bare number would be minutes in Kafka's tools, and milliseconds in its options."""
    assert [offsets.duration_ms(text) for text in ("0s", "90s", "15m", "2h", "1d")] == [
        *(0, 90_000, 900_000, 7_200_000, 86_400_000)
    ]
    for text in ("", "15", "-5m", "1.5h", "5 m", "m", "9999999999s"):
        with pytest.raises(CommandError) as refused:
            offsets.duration_ms(text)
        assert refused.value.exit_code == 2


def test_ages_are_shown_in_their_largest_unit() -> None:
    """A time that is ahead of us has no age."""
    shown = [times.ago(0, now_ms) for now_ms in (-5, 999, 59_999, 60_000, 7_200_000, 86_400_000 * 30)]
    assert shown == ["0s ago", "0s ago", "59s ago", "1m ago", "2h ago", "30d ago"]


def test_a_record_is_written_by_a_format() -> None:
    """All fields, escapes, and null."""
    assert compiled(r"%t %p %o %T %k %K %v %S %h %% \t\\", "NULL")(READ) == (
        b"t 3 7 1000 k 1 NULL -1 h=x,n=NULL % \t\\"
    )
    assert as_json(READ)["headers"] == [["h", "x"], ["n", None]]


@examples(200)
@given(st.text(alphabet="%\\tkspnx é", max_size=8))
def test_any_format_is_taken_or_refused(text: str) -> None:
    """There is no other error."""
    try:
        write = compiled(text)
    except CommandError:
        return
    assert isinstance(write(READ), bytes)


def test_options_come_from_flags_then_x_then_file(tmp_path: Path) -> None:
    """The nearest one counts."""
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=file:1\nclient.id=file\nretry.backoff.ms=7\n")

    given_all = Target("flag:1", file, ("client.id=x", "bootstrap.servers=x:1")).settings(ClientSettings)
    given_none = Target(None, file).settings(ClientSettings)

    assert (given_all["bootstrap_servers"], given_all["client_id"], given_all["retry_backoff_ms"]) == ("flag:1", "x", 7)
    assert (given_none["bootstrap_servers"], given_none["client_id"]) == ("file:1", "file")
    assert Target().settings(ClientSettings)["bootstrap_servers"] == "localhost:9092"
    with pytest.raises(CommandError):
        Target(None, tmp_path / "missing").settings(ClientSettings)
    with pytest.raises(CommandError, match="takes KEY=VALUE"):
        key_values(["=x"], "-X")


def test_a_question_is_answered_at_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Yes goes on, no ends it."""
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr(click, "confirm", lambda question, err: question == "Sure?")
    output.confirm("Sure?", yes=False)
    with pytest.raises(CommandError, match="Nothing was done"):
        output.confirm("Really?", yes=False)


def commands() -> list[tuple[str, ...]]:
    """Return all commands by their words."""
    found: list[tuple[str, ...]] = []

    def walk(command: object, words: tuple[str, ...]) -> None:
        below = getattr(command, "commands", None)
        if below is None:
            found.append(words)
        for name, each in (below or {}).items():
            walk(each, (*words, name))

    for noun in nouns.NOUNS:
        walk(nouns.load(noun), (noun,))
    return found


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_has_examples_and_tells_its_json(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In its help, which needs no cluster."""
    monkeypatch.setattr(sys, "argv", ["ottla", *words, "--help"])
    with pytest.raises(SystemExit) as ended:
        main.main()
    shown = capsys.readouterr().out
    assert ended.value.code == 0
    assert f"ottla {' '.join(words)}" in shown.split("Examples:")[1]
    assert "JSON" in shown


def test_without_an_address_the_running_cluster_of_this_machine_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever its ports, and with all its brokers, if one of them runs; else localhost:9092."""
    pid = os.getpid()

    def remember(*, runs: bool, secure: bool = False) -> None:
        first = ProcessRecord(role=Role.BROKER, id=1, host="127.0.0.1", port=19092, log="broker.log")
        second = ProcessRecord(
            role=Role.BROKER,
            id=2,
            host="127.0.0.1",
            port=20001,
            log="broker.log",
            pid=pid if runs else None,
            start_time=start_time(pid),
        )
        record = ClusterRecord(
            zookeeper_connect="127.0.0.1:2181", base_port=0, http_base_port=0, secure=secure, processes=(first, second)
        )
        ClusterDir(tmp_path).write(record)

    def meant(environment: Mapping[str, str]) -> str:
        return options_of_this_machine(environment)["bootstrap.servers"]

    here = {"OTTLA_DIR": str(tmp_path)}
    assert meant(here) == "localhost:9092"
    remember(runs=True)
    assert meant(here) == "127.0.0.1:19092,127.0.0.1:20001"
    assert meant({"XDG_DATA_HOME": str(tmp_path)}) == "localhost:9092"
    monkeypatch.setenv("OTTLA_DIR", str(tmp_path))
    assert Target().settings(ClientSettings)["bootstrap_servers"] == "127.0.0.1:19092,127.0.0.1:20001"
    assert Target("other:1").settings(ClientSettings)["bootstrap_servers"] == "other:1"
    remember(runs=False)
    assert meant(here) == "localhost:9092"

    remember(runs=True, secure=True)
    properties = ClusterDir(tmp_path).security.client_properties
    properties.parent.mkdir()
    properties.write_text("bootstrap.servers=elsewhere:1\nsecurity.protocol=SSL\n")
    assert options_of_this_machine(here) == {
        "bootstrap.servers": "127.0.0.1:19092,127.0.0.1:20001",
        "security.protocol": "SSL",
    }


def test_an_empty_address_is_refused() -> None:
    """A variable in a script that is not set must not mean another cluster."""
    for empty in ("", " ", ","):
        with pytest.raises(CommandError, match="-b is empty") as refused:
            Target(empty).settings(ClientSettings)
        assert refused.value.exit_code == 2


def modules_of(*arguments: str) -> tuple[set[str], str]:
    """Run a command line in a process of its own; return the modules that it imported, and what it printed."""
    code = (
        f"import sys; sys.argv = ['ottla', *{arguments!r}]\n"
        "from ottla.client.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: print(*sys.modules, file=sys.stderr)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    return set(ran.stderr.split()), ran.stdout


# Modules that no quick command may import, because each of them takes longer than the command itself.
SLOW = {"kazoo", "numpy", "prometheus_client", "pyarrow", "pydantic", "rich", "structlog", "typer", "uvloop", "yaml"}


def test_help_imports_nothing_that_is_slow() -> None:
    """Neither the client nor the commands below a noun, until they are called for."""
    loaded, shown = modules_of("--help")
    ours = {"ottla.client.admin.admin", "ottla.client.cli.commands.topic", "ottla.client.cli.terminal.output"}
    slow = {"asyncio", "dataclasses", "json", "msgspec", "ssl", "subprocess"}
    assert (ours | slow | SLOW) & loaded == set()
    assert "Consumer groups" in shown


def test_a_list_of_topics_imports_only_what_it_needs(broker: BrokerProcess) -> None:
    """No request about other things, no producer or consumer, no broker."""
    loaded, shown = modules_of("topic", "list", "-b", broker.bootstrap)
    requests = {f"ottla.client.admin.{name}_requests" for name in ("config", "group", "security", "transaction")}
    ours = {"ottla.client.admin.results", "ottla.client.consumer.consumer", "ottla.client.producer.producer"}
    assert ({"msgspec"} | requests | ours | SLOW) & loaded == set()
    assert not any(name.startswith("ottla.broker") for name in loaded)
    assert shown.startswith("TOPIC")


def test_the_script_works_as_a_process(broker: BrokerProcess, topic: str) -> None:
    """The way of a user: create, produce by a pipe, consume."""

    def ottla(*arguments: str, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-m", "ottla.client.cli", *arguments, "-b", broker.bootstrap]
        return subprocess.run(command, input=data, capture_output=True, timeout=120, check=False)

    assert ottla("topic", "create", topic).returncode == 0
    assert ottla("topic", "produce", topic, data=b"hello\n").returncode == 0
    assert ottla("topic", "consume", topic, "-e").stdout == b"hello\n"
    failed = ottla("topic", "describe", "not-there")
    assert (failed.returncode, failed.stdout) == (1, b"")
    assert failed.stderr.startswith(b"Error: there is no topic 'not-there'.")


def test_unknown_commands_are_answered_with_the_nearest(ottla: Ottla) -> None:
    """Of nouns, and of what they have."""
    assert "'topic'" in ottla("topics").err
    assert "'describe'" in ottla("topic", "descripe").err
    assert errors.CommandError("x").exit_code == 1


def test_completion_is_set_up_once(tmp_path: Path) -> None:
    """A script that asks `ottla`, and a line that loads it in new shells."""
    for name, start in (("bash", ".bashrc"), ("zsh", ".zshrc")):
        (tmp_path / start).write_text("mine\n")
        for _ in range(2):
            assert start in completion.install(name, tmp_path)
        loaded = (tmp_path / start).read_text().splitlines()
        assert (loaded[0], len(loaded)) == ("mine", 2)
        assert "_OTTLA_COMPLETE" in Path(loaded[1].split("'")[1]).read_text()
    assert "ottla.fish" in completion.install("fish", tmp_path)
    assert completion.shell({"SHELL": "/usr/bin/zsh"}) == "zsh"
    with pytest.raises(CommandError, match="bash, zsh, fish"):
        completion.shell({})
