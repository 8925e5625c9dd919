"""Brokers that stop as they should, and brokers that come back as somebody else, under load."""

from __future__ import annotations

import shutil

from tests.faults.checker.truth import Outcome
from tests.faults.cluster import BROKER_IDS
from tests.faults.experiment import Experiment, check_valid
from tests.faults.steps import ACK_GAP_MAX_S, kill, secured_protocol


@secured_protocol
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


def test_a_broker_with_the_id_of_a_lost_one_takes_over_its_partitions_and_fills_them(experiment: Experiment) -> None:
    """It has nothing but the id; the leaders' logs are copied, and it is in the ISR again."""
    cluster = experiment.cluster
    experiment.start()
    lost = experiment.state().leader
    with experiment.fault("machine lost", f"broker {lost}", ACK_GAP_MAX_S) as fault:
        gone = kill(cluster, lost)
        shutil.rmtree(cluster.brokers[lost].log_dir)
        fault.proof = f"{gone}; its disks are empty"
        experiment.wait_for_acks(20)
    cluster.start_brokers(lost)
    experiment.wait_for_full_isr()

    check_valid(experiment.finish())
