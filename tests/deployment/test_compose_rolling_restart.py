"""`scripts/compose_rolling_restart` with something that passes for compose; nothing here needs Docker."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.deployment.test_compose import BROKERS, SECURE_BROKERS, SERVICES
from tests.faults.experiment import Experiment, check_valid
from tests.faults.steps import ACK_GAP_MAX_S
from tests.faults.up_cluster import UpCluster
from tests.kit.broker_process import clean_environment

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "compose_rolling_restart"
# Writes its arguments to a file, and answers as a cluster whose controller is broker 1, and broker 3 a needed one.
RECORDER = """#!/bin/sh
echo "$@" >> "$CALLS"
case "$*" in
*"config --services") printf 'zookeeper\\nbroker-3\\nbroker-10\\nbroker-1\\nconsole\\nsecure-broker-2\\n' ;;
*"cluster controller"*) echo '{"broker_id": 1, "host": "broker-1", "port": 19092, "rack": null}' ;;
*"safe-to-stop $NEEDED"*) echo "NOT safe to stop"; exit 1 ;;
esac
"""


class Recorded:
    """Runs the script with the recorder."""

    def __init__(self, folder: Path) -> None:
        self._compose = folder / "compose"
        self._compose.write_text(RECORDER)
        self._compose.chmod(0o755)
        self._calls = folder / "calls"

    def __call__(self, *options: str, needed: str = "none") -> subprocess.CompletedProcess[str]:
        self._calls.write_text("")
        environment = {**os.environ, "COMPOSE": str(self._compose), "CALLS": str(self._calls), "NEEDED": needed}
        return subprocess.run(
            [SCRIPT, *options],
            env={**environment, "POLL_SECONDS": "0"},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    @property
    def restarted(self) -> list[str]:
        """The services that were restarted, in order."""
        return re.findall(r"^up --detach --no-deps --force-recreate (.*)$", self._calls.read_text(), re.MULTILINE)

    @property
    def calls(self) -> list[str]:
        """All calls of compose."""
        return self._calls.read_text().splitlines()


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    """The script, whose calls are written down."""
    return Recorded(tmp_path)


def test_the_ids_of_brokers_are_in_the_names_of_their_services() -> None:
    """The script counts on it."""
    for name in (*BROKERS, *SECURE_BROKERS):
        assert str(SERVICES[name]["environment"]["KAFKA_BROKER_ID"]) == name.rpartition("-")[2]


def test_brokers_are_restarted_one_by_one_with_the_controller_last(recorded: Recorded) -> None:
    """Each is asked for before, through another broker, and waited for after."""
    done = recorded("--allow-unreplicated")
    assert (done.returncode, recorded.restarted) == (0, ["broker-3", "broker-10", "broker-1"]), done.stderr
    before = recorded.calls[: recorded.calls.index("up --detach --no-deps --force-recreate broker-3")]
    assert before[-2:] == [
        "run --rm --no-deps -T --entrypoint ottla broker-1 check health",
        "run --rm --no-deps -T --entrypoint ottla broker-1 broker safe-to-stop 3 --allow-unreplicated",
    ]
    assert recorded.calls[-1].endswith("ottla broker-1 partition elect")


def test_a_broker_that_is_needed_stops_the_restart(recorded: Recorded) -> None:
    """With the reason, and the command that goes on with the rest."""
    done = recorded("--timeout", "0", needed="10")
    assert (done.returncode, recorded.restarted) == (1, ["broker-3"])
    assert "broker-10: not safe to stop within 0 s:\nNOT safe to stop" in done.stderr
    assert done.stderr.endswith("run again: " + str(SCRIPT) + " broker-10 broker-1\n")


def test_nothing_is_restarted_in_a_dry_run_or_by_mistake(recorded: Recorded) -> None:
    """Wrong names and options are refused before anything happens; the secure brokers are those of their profile."""
    assert "broker-3: would be restarted" in recorded("--dry-run").stdout
    assert recorded.restarted == []
    assert (recorded("broker-4").returncode, recorded.restarted) == (2, [])
    assert (recorded("--all").returncode, recorded("--timeout", "soon").returncode, recorded.calls) == (2, 2, [])
    assert (recorded("--secure").returncode, recorded.calls[-2].startswith("--profile secure run")) == (0, True)
    assert recorded.calls[-1].endswith("partition elect --command-config /etc/ottla/security/client.properties")


@pytest.fixture
def up_cluster(tmp_path: Path) -> Iterator[UpCluster]:
    """Three brokers of `ottla up`."""
    made = UpCluster(tmp_path)
    try:
        made.up()
        yield made
    finally:
        made.close()


@pytest.mark.long_faults
def test_the_script_restarts_real_brokers_under_load(up_cluster: UpCluster, tmp_path: Path) -> None:
    """What it asks, it asks of a real cluster; nothing is lost."""
    experiment = Experiment(up_cluster, tmp_path)
    stand_in = Path(__file__).with_name("stand_in_compose.py")
    environment = {**clean_environment(), "COMPOSE": f"{sys.executable} {stand_in} {up_cluster.directory}"}
    try:
        experiment.start()
        before = up_cluster.pids()
        with experiment.fault("rolling restart", "all brokers", ACK_GAP_MAX_S) as fault:
            done = subprocess.run([SCRIPT], env=environment, capture_output=True, text=True, check=False, timeout=300)
            assert done.returncode == 0, done.stdout + done.stderr
            fault.proof = done.stdout
        assert not set(up_cluster.pids().values()).intersection(before.values())
        check_valid(experiment.finish())
    finally:
        experiment.close()
