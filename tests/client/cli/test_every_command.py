"""Every command on a real broker: as a table, as JSON and as YAML, and how it fails. No command is left out."""

from __future__ import annotations

import json
import shutil
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
import yaml
from tests.client.cli.command_cases import CASES
from tests.client.cli.conftest import Ottla
from tests.client.token_broker import TokenBroker
from tests.kit.broker_process import BrokerProcess
from tests.kit.waiting import until
from tests.kit.zookeeper import ZooKeeper, ZooKeeperServer

from ottla.client.cli.main import app
from ottla.client.cli.terminal import output
from ottla.client.cli.terminal.nouns import LOCAL, NOUNS, load
from ottla.client.cli.terminal.tables import fitted, in_blocks, in_lines
from ottla.sync import Consumer

# `up` runs the console; tests/console has the rest of it.
TESTED_BELOW = {"up", "down", "status", "console", "cluster restart"}
# A transaction can be made to hang only on a broker with other options.
IN_TEST_TRANSACTION = {
    f"transaction {verb}" for verb in ("list", "describe", "producers", "find-hanging", "abort", "fence")
}
# They need a ZooKeeper with logins, or jars: tests/interop/test_secure_local_cluster.py and test_zookeeper.py.
IN_TEST_ZOOKEEPER = {"zookeeper install", "zookeeper secure", "zookeeper unsecure"}
# A broker can be emptied only where there are others.
IN_TEST_BALANCE = {"broker drain"}
# Where there is one broker, no reassignment is under way that could be cancelled, and nobody could take over from it.
ENDS_WITH_1 = {"partition reassign cancel", "broker safe-to-stop"}


def commands() -> Iterator[str]:
    """Return the names of all commands that there are."""
    for noun in (*LOCAL, *NOUNS):
        app.commands[noun] = load(noun)

    def below(command: Any, path: tuple[str, ...]) -> Iterator[str]:
        if not getattr(command, "commands", None):
            yield " ".join(path)
        for name, child in getattr(command, "commands", {}).items():
            yield from below(child, (*path, name))

    return below(app, ())


class Stage(dict[str, str]):
    """What commands are about, made when a command first names it, and anew for each command."""

    def __init__(
        self,
        ottla: Ottla,
        broker: BrokerProcess,
        folder: Path,
        ends: ExitStack,
        acls: Callable[[], str],
        tokens: Callable[[], TokenBroker],
    ) -> None:
        super().__init__()
        self._ottla = ottla
        self._broker = broker
        self._folder = folder
        self._ends = ends
        self._makers: dict[str, Callable[[], str]] = {
            "new": lambda: f"t-{uuid4().hex}",
            "here": lambda: self._broker.bootstrap,
            "topic": self._topic,
            "deleted": self._deleted,
            "some_deleted": lambda: self._deleted()[:0],
            "group": self._group,
            "member": self._member,
            "plan": self._plan,
            "segment": self._segment,
            "log_dir": lambda: str(self._broker.log_dir),
            "profile": self._profile,
            # Something that is there without being named.
            "profiles": lambda: self._profile()[:0],
            "groups": lambda: self._group()[:0],
            "file": self._file,
            "password": lambda: self._written("password", "secret\n"),
            "user": self._user,
            "limited": self._limited,
            "acls": acls,
            "allowed": self._allowed,
            "tokens": lambda: f"--command-config={self._written('login', tokens().properties)}",
            "guarded": lambda: tokens().bootstrap,
            "token": self._token,
            "some_token": lambda: self._token()[:0],
        }

    def __missing__(self, name: str) -> str:
        self[name] = self._makers[name]()
        return self[name]

    def words(self, line: str) -> list[str]:
        """Return the arguments of a line."""
        return [word for part in line.split() if (word := part.format_map(self))]

    def _topic(self) -> str:
        topic = f"t-{uuid4().hex}"
        assert self._ottla("topic", "create", topic).code == 0
        assert self._ottla("topic", "produce", topic, "a", "b", "c").code == 0
        return topic

    def _deleted(self) -> str:
        topic = f"t-{uuid4().hex}"
        assert self._ottla("topic", "create", topic, "-c", "ottla.undelete.ms=600000").code == 0
        assert self._ottla("topic", "delete", topic, "--yes").code == 0
        return topic

    def _group(self) -> str:
        group = f"g-{uuid4().hex}"
        assert self._ottla("group", "seek", group, "--to", "start", "--topic", self["topic"], "--yes").code == 0
        return group

    def _member(self) -> str:
        group = f"g-{uuid4().hex}"
        options: dict[str, Any] = {"bootstrap_servers": self._broker.bootstrap, "group_id": group}
        consumer = self._ends.enter_context(Consumer(self["topic"], **options))
        until(consumer.assignment)
        return group

    def _plan(self) -> str:
        rows = [{"topic": self["topic"], "partition": 0, "replicas": [1]}]
        return self._written("plan.json", json.dumps({"version": 1, "partitions": rows}))

    def _segment(self) -> str:
        copied = shutil.copytree(self._broker.partition_dir(self["topic"]), self._folder / uuid4().hex)
        return str(copied / f"{0:020}.log")

    def _profile(self) -> str:
        name = f"p-{uuid4().hex}"
        assert self._ottla("profile", "add", name, "-b", "broker:9092").code == 0
        return name

    def _user(self) -> str:
        user = f"u-{uuid4().hex}"
        assert self._ottla("user", "create", user, "--password-file", self["password"]).code == 0
        return user

    def _limited(self) -> str:
        user = f"u-{uuid4().hex}"
        assert self._ottla("quota", "alter", "--user", user, "--produce", "1000000000").code == 0
        return user

    def _allowed(self) -> str:
        user = f"u-{uuid4().hex}"
        line = ("--principal", user, "--operation", "read", "--topic", "t")
        assert self._ottla("acl", "create", "-b", self["acls"], *line).code == 0
        return user

    def _token(self) -> str:
        made = self._ottla("token", "create", "-b", self["guarded"], self["tokens"], "--format", "json")
        assert made.code == 0, made.err
        return str(made.items[0]["token_id"])

    def _file(self) -> str:
        return self._written("topics.yaml", f"topics:\n- name: {uuid4().hex}\n  partitions: 2\n")

    def _written(self, name: str, text: str) -> str:
        path = self._folder / f"{uuid4().hex}-{name}"
        path.write_text(text)
        return str(path)


@pytest.fixture
def stage(
    ottla: Ottla, broker: BrokerProcess, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[[], Stage]]:
    """Return a function that makes a stage."""

    def acls() -> str:
        return str(request.getfixturevalue("authorizing_broker").bootstrap)

    def tokens() -> TokenBroker:
        made: TokenBroker = request.getfixturevalue("token_broker")
        return made

    with ExitStack() as ends:
        yield lambda: Stage(ottla, broker, tmp_path, ends, acls, tokens)


def test_no_command_is_left_out() -> None:
    """A new command needs a case here."""
    assert {*CASES, *TESTED_BELOW, *IN_TEST_TRANSACTION, *IN_TEST_ZOOKEEPER, *IN_TEST_BALANCE} == set(commands())


class DrawnTable(NamedTuple):
    """A table that a command has printed: what it was made from."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    styles: Mapping[str, str]
    spare: Sequence[str]


@pytest.fixture
def drawn_tables(monkeypatch: pytest.MonkeyPatch) -> list[DrawnTable]:
    """Return a list that has all tables that commands print."""
    drawn: list[DrawnTable] = []
    draw = output._print_plain_table

    def note(*table: Any) -> None:
        drawn.append(DrawnTable(*table))
        draw(*table)

    monkeypatch.setattr(output, "_print_plain_table", note)
    return drawn


def check_no_cell_is_cut(table: DrawnTable, width: int) -> None:
    """Draw a table on a terminal: all is there but columns without content and those that the command can spare."""
    layout = fitted(table.headings, table.rows, width, 2, table.spare)
    lines = (in_blocks if layout.is_in_blocks else in_lines)(layout, 2, table.styles)
    shown = Counter(word for line in lines for word in line.plain.split())
    left_out = set(layout.left_out)
    assert left_out <= set(table.spare), (width, table)
    wanted: Counter[str] = Counter()
    for heading, *cells in zip(table.headings, *table.rows, strict=True):
        if heading not in left_out and set(cells) - {"-", ""}:
            wanted.update(word for cell in cells for word in cell.split())
    assert wanted <= shown, (width, table, wanted - shown)


@pytest.mark.parametrize("command", CASES)
def test_a_command_prints_a_table_json_and_yaml(
    command: str, ottla: Ottla, stage: Callable[[], Stage], drawn_tables: list[DrawnTable]
) -> None:
    """The table has its headings, no cell is cut on a terminal, and each object has the same fields in both formats."""
    case = CASES[command]
    code = 1 if command in ENDS_WITH_1 else 0
    name = command.split()
    table = ottla(*name, *stage().words(case.works))
    assert (table.code, table.out.split()[: len(case.headings.split())]) == (code, case.headings.split()), table.err
    for width in (60, 80, 100, 140):
        for drawn in drawn_tables:
            check_no_cell_is_cut(drawn, width)

    as_json = ottla(*name, *stage().words(case.works), "--format", "json")
    assert as_json.code == code, as_json.err
    assert as_json.items
    assert {frozenset(item) for item in as_json.items} == {frozenset(case.fields.split())}

    as_yaml = ottla(*name, *stage().words(case.works), "--format", "yaml")
    loaded = yaml.safe_load(as_yaml.out)
    assert as_yaml.code == code
    # A plan is one JSON object in all formats, which is YAML, too.
    assert {frozenset(item) for item in (loaded if isinstance(loaded, list) else [loaded])} == {
        frozenset(case.fields.split())
    }


@pytest.mark.parametrize("command", CASES)
def test_a_command_that_fails_says_why(command: str, ottla: Ottla, stage: Callable[[], Stage]) -> None:
    """With its exit code; and where it has a next step to offer, with that."""
    case = CASES[command]
    failed = ottla(*command.split(), *stage().words(case.fails))
    assert (failed.code, case.because in failed.err) == (case.fails_with, True), failed.err
    assert "Traceback" not in failed.err


def test_a_cluster_of_this_machine_is_started_shown_and_stopped(
    ottla: Ottla, zookeeper_server: ZooKeeperServer, tmp_path: Path
) -> None:
    """`up`, `status` in all formats, `cluster restart`, `down`, and what each says when it cannot."""
    where = ("--dir", str(tmp_path / "cluster"))
    ports = ("--base-port", "0", "--http-base-port", "0", "--zookeeper", ZooKeeper(zookeeper_server).connect)
    assert ottla("up", *where, "--brokers", "0").code == 2
    started = ottla("up", *where, *ports, "--console-port", "0", "--brokers", "1", "--detach")
    try:
        assert started.code == 0, started.err
        assert started.out.startswith("console:           http://localhost:")
        table = ottla("status", *where)
        assert (table.code, table.out.split()[:2], table.rows[0][5]) == (0, ["ROLE", "ID"], "running")
        as_json = ottla("status", *where, "--format", "json").items
        assert as_json == yaml.safe_load(ottla("status", *where, "--format", "yaml").out)
        shown = [(each["role"], each["state"]) for each in as_json]
        assert shown == [("broker", "running"), ("console", "running")]
        url = started.out.split()[1]
        with urllib.request.urlopen(f"{url}/api/v1/session", timeout=30) as answer:
            assert json.load(answer)["user"] == "ANONYMOUS"
        _restart(ottla, where, as_json[0]["pid"])
    finally:
        stopped = ottla("down", *where)
    assert (stopped.code, "broker 1 stopped" in stopped.err, "console stopped" in stopped.err) == (0, True, True)
    assert ottla("status", *where).code == 1
    assert ottla("status", "--dir", str(tmp_path / "other")).code == 1
    assert ottla("down", "--dir", str(tmp_path / "other")).code in (0, 1)


def _restart(ottla: Ottla, where: tuple[str, str], pid: int) -> None:
    """Restart a cluster of one broker, which is not safe and must be allowed."""
    refused = ottla("cluster", "restart", "--rolling", *where)
    assert (refused.code, "It is the only broker." in refused.err, "--allow-unreplicated" in refused.err) == (
        (1, True, True)
    ), refused.err
    assert ottla("status", *where, "--format", "json").items[0]["pid"] == pid
    done = ottla("cluster", "restart", "--rolling", *where, "--allow-unreplicated", "--format", "json")
    assert (done.code, [each["broker_id"] for each in done.items]) == (0, [1]), done.err
    assert set(done.items[0]) == {"broker_id", "pid", "down_s", "in_sync_s"}
    assert ottla("status", *where, "--format", "json").items[0]["pid"] == done.items[0]["pid"] != pid
    assert ottla("cluster", "restart", *where).code == 2
