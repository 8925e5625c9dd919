"""Whole runs of `ottla certify`: on our brokers, on Apache Kafka, and what is left behind."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scripts.certify_page import PAGE, page
from tests.client.certify.names import names_left
from tests.client.certify.test_seeded_bugs import BY_DESIGN
from tests.kit.broker_process import BrokerProcess, MakeBroker
from tests.kit.kafka_process import VERSIONS, new_kafka
from tests.kit.waiting import until
from tests.kit.zookeeper import ZooKeeper, ZooKeeperServer

from ottla.client.certify.check import NotApplicable
from ottla.client.certify.harm import Harm
from ottla.client.certify.runner import selected
from ottla.client.certify.table import SUBJECTS, all_checks

DEADLINE_S = 300
INTERRUPTED = 130


def command(bootstrap: str, *options: str) -> list[str]:
    """Return the command line."""
    return [sys.executable, "-m", "ottla.client.cli", "certify", "-b", bootstrap, *options]


def report(bootstrap: str, *options: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """Run the command; return its exit code and its results by the full name of the check."""
    done = subprocess.run(
        command(bootstrap, "--format", "json", *options), check=False, capture_output=True, timeout=DEADLINE_S
    )
    assert done.stderr == b"", done.stderr.decode()
    items = [json.loads(line) for line in done.stdout.splitlines()]
    return done.returncode, {f"{item['subject']}/{item['check']}": item for item in items}


def with_result(items: dict[str, dict[str, Any]], result: str) -> set[str]:
    """Return the checks that ended like this."""
    return {path for path, item in items.items() if item["result"] == result}


def test_our_broker_passes_all_but_what_it_does_not_promise(broker: BrokerProcess) -> None:
    """Nothing is left behind, and what is not applicable says why."""
    code, items = report(broker.bootstrap)
    failed = {path: items[path] for path in with_result(items, "FAILED")}
    assert (code, set(failed)) == (1, BY_DESIGN), failed
    assert set(items) == {check.path for check in all_checks()}
    assert all(items[path]["reason"] for path in with_result(items, "n/a"))
    until(lambda: names_left(broker.bootstrap) == [], "all topics and groups are gone")


@pytest.mark.long
def test_our_broker_passes_all_if_it_checks_records(make_broker: MakeBroker) -> None:
    """Which is an option, because it costs more than an append does."""
    checking = make_broker(
        "ottla.log.check.records=true",
        "authorizer.class.name=kafka.security.authorizer.AclAuthorizer",
        "super.users=User:ANONYMOUS",
    )
    code, items = report(checking.bootstrap)
    assert (code, with_result(items, "FAILED")) == (0, set())
    assert "admin/acls" in with_result(items, "passed")


@pytest.mark.long
@pytest.mark.parametrize("version", VERSIONS)
def test_apache_kafka_passes_all(version: str, tmp_path: Path, zookeeper_server: ZooKeeperServer) -> None:
    """The checks are about what Kafka does."""
    kafka = new_kafka(version, tmp_path / "kafka", zookeeper_server)
    kafka.start_on_free_ports()
    try:
        code, items = report(kafka.bootstrap)
        failed = {path: items[path] for path in with_result(items, "FAILED")}
        assert (code, failed) == (0, {})
        until(lambda: names_left(kafka.bootstrap) == [], "all topics and groups are gone")
    finally:
        kafka.kill()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, INTERRUPTED), (signal.SIGTERM, 1)])
def test_a_run_that_is_stopped_leaves_nothing_behind(broker: BrokerProcess, number: signal.Signals, code: int) -> None:
    """Ctrl-C, and the polite way to end a process: checks that are under way remove their topics first."""
    only = [part for subject in ("groups", "transactions") for part in ("--only", subject)]
    with subprocess.Popen(command(broker.bootstrap, *only), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            until(lambda: any("silent-member" in name for name in names_left(broker.bootstrap)), "checks run")
            process.send_signal(number)
            assert process.wait(DEADLINE_S) == code
        finally:
            process.kill()
    until(lambda: names_left(broker.bootstrap) == [], lambda: f"left: {names_left(broker.bootstrap)}")


@pytest.mark.long
def test_the_death_of_brokers_is_survived(zookeeper_server: ZooKeeperServer, tmp_path: Path) -> None:
    """With a command that kills one; without a command that starts it again, that is done once."""
    zookeeper = ZooKeeper(zookeeper_server).connect
    replicated = ("offsets.topic.replication.factor=3", "transaction.state.log.replication.factor=3")
    brokers = [BrokerProcess(tmp_path / str(number), zookeeper, *replicated, broker_id=number) for number in (1, 2, 3)]
    try:
        for each in brokers:
            each.start_on_free_ports()
            (tmp_path / f"{each.broker_id}.pid").write_text(str(each.pid))
        bootstrap = ",".join(each.bootstrap for each in brokers)
        kill = f"kill -9 $(cat {shlex.quote(str(tmp_path))}/{{broker}}.pid)"
        only = ("--only", "failures", "--only", "admin/moving-a-partition", "--only", "metadata")
        code, items = report(bootstrap, *only, "--allow-harm", "--harm-command", kill)
        assert (code, with_result(items, "FAILED")) == (0, set()), items
        assert {"failures/death-of-a-leader", "admin/moving-a-partition"} <= with_result(items, "passed")
        assert "--heal-command" in items["failures/death-of-a-coordinator"]["reason"]
        assert sum(each.has_ended for each in brokers) == 1
    finally:
        for each in brokers:
            each.kill()


async def test_a_harm_command_that_fails_is_no_fault_of_the_cluster() -> None:
    """The check is not applicable, with what the command has said."""
    with pytest.raises(NotApplicable, match="exit code 3: no such broker 7"):
        await Harm("echo no such broker {broker}; exit 3").stop_broker(7)
    await Harm("true {broker}").start_broker(7)


def test_the_page_lists_the_checks() -> None:
    """`make docs` writes it."""
    assert PAGE.read_text() == page()


def test_every_check_says_what_must_hold() -> None:
    """In one sentence; no two checks have the same name."""
    checks = all_checks()
    assert len({check.path for check in checks}) == len(checks)
    for check in checks:
        assert check.holds.endswith("."), check.path
        assert "\n" not in check.holds, check.path


@pytest.mark.parametrize(
    ("names", "holds"),
    [
        ([], lambda chosen: len(chosen) == len(all_checks())),
        (["fetch"], lambda chosen: {check.subject for check in chosen} == {"fetch"}),
        (["fetch/session"], lambda chosen: [check.name for check in chosen] == ["session"]),
    ],
)
def test_checks_are_chosen_by_subject_or_name(names: list[str], holds: Callable[[Any], bool]) -> None:
    """All of them if none is named."""
    assert holds(selected(all_checks(), names))
    assert len({subject.subject for subject in SUBJECTS}) == len(SUBJECTS)
