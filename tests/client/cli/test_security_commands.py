"""`ottla user`, `ottla acl` and `ottla quota` on real brokers."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from tests.client.cli.conftest import Ottla
from tests.kit.broker_process import BrokerProcess


@pytest.fixture
def user() -> str:
    """A name that no other user has."""
    return f"user-{uuid.uuid4().hex}"


@pytest.mark.parametrize("source", ["file", "input", "environment"])
def test_a_password_comes_from_a_file_the_input_or_the_environment(
    source: str, ottla: Ottla, user: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is printed nowhere."""
    (tmp_path / "password").write_text("planted\nnot this\n")
    arguments: dict[str, tuple[str, ...]] = {
        "file": ("--password-file", str(tmp_path / "password")),
        "input": ("--password-file", "-"),
        "environment": (),
    }
    if source == "environment":
        monkeypatch.setenv("OTTLA_PASSWORD", "planted")

    created = ottla("user", "create", user, *arguments[source], stdin=b"planted\n")

    assert (created.code, created.rows) == (0, [[user, "created"]])
    assert "planted" not in created.out + created.err
    assert ottla("user", "list", user).rows == [[user, "SCRAM-SHA-512", "8192"]]


def test_a_user_is_created_once_and_updated_only_where_it_is(ottla: Ottla, user: str) -> None:
    """Whoever types the wrong name should learn of it."""
    missing = ottla("user", "update", user, "--password-file", "-", stdin=b"first")
    assert (missing.code, f"`ottla user create {user}`" in missing.err) == (1, True)
    assert ottla("user", "create", user, "--password-file", "-", stdin=b"first").code == 0
    again = ottla("user", "create", user, "--password-file", "-", stdin=b"second")
    assert (again.code, f"`ottla user update {user}`" in again.err) == (1, True)

    more = ("--mechanism", "scram-sha-256", "--iterations", "4096", "--password-file", "-")
    assert ottla("user", "create", user, *more, stdin=b"third").code == 0
    assert ottla("user", "update", user, "--password-file", "-", stdin=b"fourth").code == 0
    assert ottla("user", "list", user).rows == [[user, "SCRAM-SHA-256", "8192"], [user, "SCRAM-SHA-512", "8192"]]
    assert ottla("user", "delete", user, "--mechanism", "SCRAM-SHA-256", "--yes").code == 0
    assert ottla("user", "list", user).rows == [[user, "SCRAM-SHA-512", "8192"]]


@pytest.mark.parametrize(
    ("arguments", "stdin", "because"),
    [
        (("--password-file", "-"), b"\n", "The password is empty"),
        (("--password-file", "-"), b"\xff", "UTF-8"),
        (("--password-file", "missing.txt"), b"", "missing.txt"),
        (("--mechanism", "PLAIN"), b"", "SCRAM-SHA-256"),
        (("--iterations", "100"), b"", "4096"),
    ],
)
def test_what_is_no_password_or_mechanism_is_refused(
    arguments: tuple[str, ...], stdin: bytes, because: str, ottla: Ottla, user: str
) -> None:
    """Before anything is asked of a broker."""
    refused = ottla("user", "create", user, *arguments, stdin=stdin)

    assert refused.code in (1, 2)
    assert because in refused.err


def test_the_first_user_is_there_before_the_first_broker(ottla: Ottla, user: str, broker: BrokerProcess) -> None:
    """Written to ZooKeeper, where brokers find it."""
    where = ("--zookeeper", broker.zookeeper)
    odd = f"{user}/with a slash"
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        line = ("user", "create", odd, "--mechanism", mechanism, "--password-file", "-", *where)
        assert ottla(*line, stdin=b"secret", bootstrap="127.0.0.1:1").code == 0

    (listed,) = ottla("user", "list", odd, "--format", "json").items
    assert [each["mechanism"] for each in listed["credentials"]] == ["SCRAM-SHA-256", "SCRAM-SHA-512"]


def test_a_zookeeper_that_is_not_there_is_named(ottla: Ottla, user: str) -> None:
    """In bounded time."""
    line = ("--password-file", "-", "--zookeeper", "127.0.0.1:1", "--timeout", "0.5")
    failed = ottla("user", "create", user, *line, stdin=b"secret")

    assert (failed.code, "127.0.0.1:1" in failed.err) == (1, True)


def test_rights_of_producers_and_consumers_are_created_in_one_go(
    ottla: Ottla, user: str, authorizing_broker: BrokerProcess
) -> None:
    """And listed by user, or by what they are about."""
    to = ("-b", authorizing_broker.bootstrap, "--principal", user)
    names = ("--topic", user, "--group", f"{user}-group")
    created = ottla("acl", "create", *to, "--producer", "--consumer", *names)

    rights = {(row[0], row[2], row[3], row[4], row[5]) for row in created.rows}
    assert rights == {
        *((f"User:{user}", "allow", each, "topic", user) for each in ("write", "describe", "create", "read")),
        (f"User:{user}", "allow", "read", "group", f"{user}-group"),
    }
    assert {tuple(row) for row in ottla("acl", "list", *to).rows} == {tuple(row) for row in created.rows}
    prefix = ("--deny", "--operation", "all", "--topic", user[:20], "--prefix", "--host", "10.0.0.1")
    assert ottla("acl", "create", *to, *prefix).code == 0
    about = ottla("acl", "list", "-b", authorizing_broker.bootstrap, "--topic", user)
    assert len(about.rows) == 5
    deleted = ottla("acl", "delete", *to, "--topic", user, "--operation", "write", "--yes")
    assert [row[3] for row in deleted.rows] == ["write"]
    assert len(ottla("acl", "list", *to).rows) == 5


@pytest.mark.parametrize(
    ("line", "because"),
    [
        ("create --operation read --topic t", "--principal"),
        ("create --principal u --topic t", "--operation"),
        ("create --principal u --operation read", "--topic"),
        ("create --principal u --operation fly --topic t", "idempotent-write"),
        ("create --principal u --consumer --topic t", "--group"),
        ("create --principal u --producer --deny --topic t", "--producer"),
        ("create --principal u --allow --deny --operation read --topic t", "not both"),
        ("delete --principal u", "--yes"),
    ],
)
def test_rights_that_make_no_sense_are_refused(line: str, because: str, ottla: Ottla) -> None:
    """With a word about what is missing."""
    refused = ottla("acl", *line.split())

    assert (refused.code, because in refused.err) == (2, True)


def test_quotas_are_set_listed_and_removed(ottla: Ottla, user: str) -> None:
    """For a user, a pair, and an address."""
    assert ottla("quota", "alter", "--user", user, "--produce", "1000000000", "--request", "250.5").code == 0
    assert ottla("quota", "alter", "--user", user, "--default", "client-id", "--fetch", "2e9").code == 0
    dry = ottla("quota", "alter", "--user", user, "--mutations", "5", "--dry-run")
    assert dry.rows == [[f"user={user}", "ok", "to", "change"]]

    assert ottla("quota", "list", "--user", user).rows == [
        [user, "-", "-", "1000000000", "-", "250.5", "-", "-"],
        [user, "<default>", "-", "-", "2000000000", "-", "-", "-"],
    ]
    assert ottla("quota", "alter", "--user", user, "--produce", "none", "--request", "NONE").code == 0
    assert len(ottla("quota", "list", "--user", user).rows) == 1


@pytest.mark.parametrize(
    ("line", "because"),
    [
        ("alter --produce 5", "--user"),
        ("alter --user u", "--produce"),
        ("alter --user u --produce much", "much"),
        ("alter --user u --default user --produce 5", "default"),
        ("alter --user u --ip 10.0.0.1 --produce 5", "ip"),
        ("alter --ip nowhere --connections 5", "nowhere"),
    ],
)
def test_quotas_that_make_no_sense_are_refused(line: str, because: str, ottla: Ottla) -> None:
    """Here or by the broker."""
    refused = ottla("quota", *line.split())

    assert refused.code in (1, 2)
    assert because in refused.err
