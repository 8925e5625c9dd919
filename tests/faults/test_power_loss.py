"""Machines that lose what was not yet on disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.faults.cluster import Cluster
from tests.faults.disks import Disks
from tests.faults.experiment import Experiment, check_valid
from tests.faults.replica_logs import replica_log
from tests.faults.steps import ACK_GAP_MAX_S, others, replicas_led_by, until_known
from tests.kit.apache_kafka import UnavailableError, skip_or_fail

ALL = 2**63 - 1


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[Disks]:
    """Disks that can lose power."""
    try:
        made = Disks(tmp_path)
    except UnavailableError as error:
        skip_or_fail(error)
    with closing(made):
        yield made


def test_f24_a_leader_that_loses_power_loses_nothing_for_the_cluster(
    disks: Disks, tmp_path: Path, protocol: str
) -> None:
    """It comes back with less than it had; what it lacks was acknowledged by others as well, and it copies that."""
    cluster = Cluster(tmp_path, protocol=protocol)
    with closing(cluster), closing(Experiment(cluster, tmp_path)) as experiment:
        try:
            for broker, process in cluster.brokers.items():
                process.log_dir = disks.new(f"disk-{broker}") / "data"
        except UnavailableError as error:
            skip_or_fail(error)
        cluster.start()
        leader = others(cluster.state.controller())[0]
        experiment.start(replicas_led_by(leader, *others(leader)))
        experiment.wait_for_acks(100)
        process = cluster.brokers[leader]
        with experiment.fault("power loss", f"broker {leader}", ACK_GAP_MAX_S) as fault:
            process.kill()
            had = end_on_disk(process.partition_dir(experiment.topic))
            process.log_dir = disks.after_power_loss(f"disk-{leader}", "disk-after-power-loss") / "data"
            found = end_on_disk(process.partition_dir(experiment.topic))
            until_known(lambda: leader not in cluster.state.brokers(), "its session is over")
            experiment.wait_for_acks(20)
            cluster.start_brokers(leader)
            fault.proof = f"the log ended at {had}, and after the loss at {found}" if found < had else ""
            experiment.wait_for_full_isr()
            experiment.wait_for_acks(20)
        report = experiment.finish()

    check_valid(report)


def test_f25_with_flush_before_ack_nothing_is_lost_when_all_machines_lose_power(
    disks: Disks, tmp_path: Path, protocol: str
) -> None:
    """A follower starts first and leads with what it had forced to its disk: everything that was acknowledged."""
    cluster = Cluster(tmp_path, protocol=protocol)
    with closing(cluster), closing(Experiment(cluster, tmp_path)) as experiment:
        try:
            for broker, process in cluster.brokers.items():
                process.log_dir = disks.new(f"disk-{broker}") / "data"
        except UnavailableError as error:
            skip_or_fail(error)
        cluster.start()
        leader = cluster.state.controller()
        experiment.start([(leader, *others(leader))] * experiment.partitions, ottla_flush_before_ack="true")
        experiment.wait_for_acks(100)
        with experiment.fault("power loss", "all brokers") as fault:
            for process in cluster.brokers.values():
                process.kill()
            ends = []
            for broker, process in cluster.brokers.items():
                had = end_on_disk(process.partition_dir(experiment.topic))
                process.log_dir = disks.after_power_loss(f"disk-{broker}", f"disk-{broker}-after-power-loss") / "data"
                ends.append((broker, had, end_on_disk(process.partition_dir(experiment.topic))))
            until_known(lambda: not cluster.state.brokers(), "all sessions are over")
            fault.proof = f"(broker, end before, end after): {ends}"
            first, *later = [*others(leader), leader]
            cluster.start_brokers(first)
            experiment.wait_for(lambda state: state.leader == first)
            cluster.start_brokers(*later)
            experiment.wait_for_full_isr()
            experiment.wait_for_acks(20)
        report = experiment.finish()

    check_valid(report)


def end_on_disk(folder: Path) -> int:
    """Return the offset behind the last batch in a partition's folder; 0 where there is none."""
    batches = replica_log("", 0, folder, ALL).batches
    return batches[-1].last_offset + 1 if batches else 0
