"""`ottla cluster restart --rolling` on a cluster of `ottla up`, under load."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.experiment import Experiment, check_valid
from tests.faults.steps import ACK_GAP_MAX_S
from tests.faults.up_cluster import UpCluster, said_until
from tests.kit.waiting import until


@pytest.fixture
def up_cluster(tmp_path: Path) -> Iterator[UpCluster]:
    """A cluster that is not started yet."""
    made = UpCluster(tmp_path)
    yield made
    made.close()


@pytest.mark.long_faults
def test_a_rolling_restart_that_kills_interrupt_is_continued_and_loses_nothing(
    up_cluster: UpCluster, tmp_path: Path
) -> None:
    """It says who died and stops; then it starts the dead ones first, and restarts those that are left, once."""
    up_cluster.up()
    experiment = Experiment(up_cluster, tmp_path)
    try:
        experiment.start()
        before = up_cluster.pids()
        first, second, last = _order(up_cluster)
        with experiment.fault("kill while another restarts", f"broker {last}", 2 * ACK_GAP_MAX_S) as fault:
            with up_cluster.command("cluster", "restart", "--rolling") as restart:
                said_until(restart, f"broker {first} stopped")
                up_cluster.brokers[last].kill()
                _, error = restart.communicate()
            assert restart.returncode == 1
            assert f"broker {first} was restarted, then broker {last} died." in error.decode()
            assert "To continue, run again: ottla cluster restart --rolling --dir" in error.decode()
            assert up_cluster.pids()[second] == before[second]
            fault.proof = f"process {before[last]} is gone"
        with experiment.fault("kill while it starts", f"broker {second}", 2 * ACK_GAP_MAX_S) as fault:
            with up_cluster.command("cluster", "restart", "--rolling") as restart:
                said = said_until(restart, f"broker {second} stopped")
                assert f"broker {last} is not running, and is started" in said
                until(lambda: up_cluster.pids()[second] not in (None, before[second]), "it is started again")
                up_cluster.brokers[second].kill()
                _, error = restart.communicate()
            assert (restart.returncode, f"broker {second} ended before it was ready" in error.decode()) == (1, True)
            fault.proof = "it ended before it was ready"
        done = {first: up_cluster.pids()[first], last: up_cluster.pids()[last]}

        code, said = up_cluster.rolling_restart()

        assert (code, "Continuing the restart that began at" in said) == (0, True), said
        after = up_cluster.pids()
        assert {first: after[first], last: after[last]} == done
        assert not set(after.values()).intersection(before.values())
        assert not (up_cluster.directory / "rolling-restart.json").exists()
        experiment.wait_for_acks(20)
        check_valid(experiment.finish())
    finally:
        experiment.close()


def _order(cluster: UpCluster) -> list[int]:
    """Return the brokers in the order in which they are restarted: the controller last."""
    controller = cluster.state.controller()
    return [*(each for each in cluster.brokers if each != controller), controller]
