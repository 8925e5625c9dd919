"""What users may write for times, formats and options, and that help is there for all of it."""

from __future__ import annotations

import subprocess
import sys
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
from ottla.client.cli.terminal import errors, nouns, output, times
from ottla.client.cli.terminal.errors import CommandError
from ottla.client.cli.terminal.target import Target, default_bootstrap, key_values
from ottla.client.local_cluster.cluster_dir import ClusterDir
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


def test_the_cluster_of_this_machine_is_found_though_its_first_broker_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If `ottla up` has made the cluster at localhost:9092, all its brokers are asked; not one that is elsewhere."""
    monkeypatch.setenv("OTTLA_DIR", str(tmp_path))

    def remember(base_port: int) -> None:
        brokers = tuple(
            ProcessRecord(role=Role.BROKER, id=number, host="127.0.0.1", port=base_port + number, log="broker.log")
            for number in range(2)
        )
        connect = "127.0.0.1:2181"
        record = ClusterRecord(zookeeper_connect=connect, base_port=base_port, http_base_port=0, processes=brokers)
        ClusterDir(tmp_path).write(record)

    remember(9092)
    assert default_bootstrap() == "127.0.0.1:9092,127.0.0.1:9093"
    remember(19092)
    assert default_bootstrap() == "localhost:9092"


def test_help_imports_nothing_that_is_slow() -> None:
    """Neither the client nor the commands below a noun, until they are called for."""
    code = (
        "import sys; sys.argv = ['ottla', '--help']\n"
        "from ottla.client.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: print(*sys.modules, file=sys.stderr)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)

    loaded = set(ran.stderr.split())
    ours = {"ottla.client.admin.admin", "ottla.client.cli.commands.topic"}
    slow = {"asyncio", "kazoo", "msgspec", "numpy", "pyarrow", "rich", "ssl", "structlog", "uvloop", "yaml"}
    assert (ours | slow).isdisjoint(loaded)
    assert "Consumer groups" in ran.stdout


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
