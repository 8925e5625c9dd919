"""A cluster whose ZooKeeper is away."""

from __future__ import annotations

import pytest
from tests.faults.cluster import BROKER_IDS, SESSION_TIMEOUT_S
from tests.faults.experiment import Experiment, check_valid, wait_seconds
from tests.faults.steps import ACK_GAP_MAX_S, until_known


@pytest.mark.parametrize(
    "seconds", [4 * SESSION_TIMEOUT_S, pytest.param(30.0, marks=pytest.mark.long_faults)], ids=["short", "long"]
)
def test_f15_leaders_serve_on_without_zookeeper(experiment: Experiment, seconds: float) -> None:
    """Nobody is elected while it is away, also past the end of sessions; after its return all are registered."""
    cluster = experiment.cluster
    experiment.start()
    # All of the time: the bound leaves room for an election after the return, and not for an outage as long as this.
    with experiment.fault("kill ZooKeeper", "ZooKeeper", min(seconds, ACK_GAP_MAX_S)) as fault:
        cluster.zookeeper.kill()
        wait_seconds(seconds)
        experiment.wait_for_acks(20)
        cluster.zookeeper.start()
        until_known(lambda: cluster.state.brokers() == set(BROKER_IDS), "all are registered")
        fault.proof = f"the process was gone for {seconds:.0f} s"
        experiment.wait_for_acks(20)

    check_valid(experiment.finish())
