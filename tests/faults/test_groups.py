"""The coordinator of a consumer group comes to harm (F40): its members go on, from where they were."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.faults.cluster import BROKER_IDS, SESSION_TIMEOUT_S, Cluster
from tests.faults.experiment import check_valid, wait_seconds
from tests.faults.group_experiment import GroupExperiment
from tests.faults.steps import host, kill, network_of, others, until_known
from tests.kit.broker_process import process_state


@pytest.fixture
def experiment(cluster: Cluster, tmp_path: Path) -> Iterator[GroupExperiment]:
    """Producers and a group that are not started yet, on the loopback interface."""
    with closing(GroupExperiment(cluster, tmp_path)) as made:
        yield made


@pytest.fixture
def networked_experiment(networked_cluster: Cluster, tmp_path: Path) -> Iterator[GroupExperiment]:
    """Producers and a group that are not started yet, on hosts between which packets can be dropped."""
    with closing(GroupExperiment(networked_cluster, tmp_path)) as made:
        yield made


@pytest.mark.parametrize("kills", [1, pytest.param(4, marks=pytest.mark.long_faults)])
def test_f40_members_go_on_when_their_coordinator_is_killed(experiment: GroupExperiment, kills: int) -> None:
    """Another broker knows the group and its offsets; nothing is skipped, nothing has two owners."""
    cluster = experiment.cluster
    experiment.start()
    for _ in range(kills):
        coordinator, before = experiment.coordinator(), experiment.coordinator_state()
        with experiment.coordinator_fault("kill coordinator", coordinator) as fault:
            gone = kill(cluster, coordinator)
            successor = experiment.wait_for_coordinator_other_than(coordinator)
            fault.proof = f"{gone}; broker {successor} coordinates"
        assert experiment.coordinator_state().leader_epoch > before.leader_epoch
        cluster.start_brokers(coordinator)
        experiment.wait_for_full_isr()
        experiment.wait_for_coordinator_in_sync()

    check_valid(experiment.finish())


def test_f40_a_coordinator_that_wakes_up_takes_no_commit(experiment: GroupExperiment) -> None:
    """Asleep for longer than its session, it still believes in its groups; what it is told then goes nowhere."""
    cluster = experiment.cluster
    experiment.start()
    coordinator = experiment.coordinator()
    broker_epoch = cluster.state.broker_epoch(coordinator)
    with experiment.coordinator_fault("pause coordinator", coordinator) as fault:
        cluster.pause(coordinator)
        successor = experiment.wait_for_coordinator_other_than(coordinator)
        wait_seconds(SESSION_TIMEOUT_S)
        assert process_state(cluster.brokers[coordinator].pid) == "T"
        cluster.resume(coordinator)
        until_known(lambda: cluster.state.broker_epoch(coordinator) > broker_epoch, "it registers anew")
        fault.proof = f"the process was stopped; broker {successor} coordinates"
    experiment.wait_for_full_isr()

    check_valid(experiment.finish())


@pytest.mark.long_faults
@pytest.mark.parametrize("reaches_clients", [False, True], ids=["from-all", "from-the-cluster"])
def test_f40_a_coordinator_that_is_cut_off_answers_for_nobody(
    networked_experiment: GroupExperiment, reaches_clients: bool
) -> None:
    """Also where members still reach it: what it cannot replicate it does not acknowledge."""
    experiment, cluster = networked_experiment, networked_experiment.cluster
    network = network_of(cluster)
    experiment.start()
    coordinator = experiment.coordinator()
    assert coordinator in BROKER_IDS
    cut = [*map(host, others(coordinator)), "zookeeper", *([] if reaches_clients else ["client"])]
    with experiment.coordinator_fault("isolate coordinator", coordinator) as fault:
        network.cut(host(coordinator), *cut)
        successor = experiment.wait_for_coordinator_other_than(coordinator)
        experiment.wait_for_commits(2)
        network.heal()
        fault.proof = f"{network.dropped_packets()} packets dropped; broker {successor} coordinates"
    experiment.wait_for_full_isr()

    check_valid(experiment.finish())
