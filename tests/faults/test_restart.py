"""Brokers that stop as they should, one after the other, under load."""

from __future__ import annotations

from tests.faults.checker.truth import Outcome
from tests.faults.cluster import BROKER_IDS
from tests.faults.experiment import Experiment, check_valid
from tests.faults.steps import ACK_GAP_MAX_S


def test_f38_a_rolling_restart_fails_no_send(experiment: Experiment) -> None:
    """Each broker hands over what it leads before it ends; idempotent producers notice nothing."""
    cluster = experiment.cluster
    experiment.start()
    for broker in BROKER_IDS:
        with experiment.fault("clean restart", f"broker {broker}", ACK_GAP_MAX_S) as fault:
            assert cluster.brokers[broker].stop() == 0
            leaders = {experiment.state(partition).leader for partition in range(experiment.partitions)}
            assert broker not in leaders
            fault.proof = f"exit code 0; leaders at its end: {sorted(leaders)}"
            experiment.wait_for_acks(20)
        cluster.start_brokers(broker)
        experiment.wait_for_full_isr()
    report = experiment.finish()

    check_valid(report)
    assert report.outcomes[Outcome.FAIL] == 0
    assert report.outcomes[Outcome.INFO] == 0
