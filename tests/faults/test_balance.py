"""Brokers that are killed while `ottla cluster balance` or `ottla broker drain` moves partitions under load."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.faults.cluster import Cluster
from tests.faults.experiment import Experiment, check_valid
from tests.faults.steps import ACK_GAP_MAX_S, controller_of, kill
from tests.kit.guarded_process import GuardedProcess
from tests.kit.waiting import until

from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest

pytestmark = pytest.mark.long_faults

BROKERS = (1, 2, 3, 4)
PARTITIONS = 8
# Slow enough that there is a middle.
LIMITS = ("--moves", "1", "--throttle", "200KiB", "--yes")
PATIENCE_S = 180.0


@pytest.fixture
def experiment(tmp_path: Path) -> Iterator[Experiment]:
    """Four brokers, with all partitions on the first three; a session without `shared_clusters`, whose have three."""
    with closing(Cluster(tmp_path, broker_ids=BROKERS)) as cluster:
        cluster.start()
        made = Experiment(cluster, tmp_path, partitions=PARTITIONS, rate=120)
        yield made
        made.close()


def moving(cluster: Cluster) -> int:
    """Return how many partitions move or wait for their turn; -1 if nobody can say."""
    try:
        answer = cluster.request(
            controller_of(cluster),
            Api.LIST_PARTITION_REASSIGNMENTS,
            0,
            ListPartitionReassignmentsRequest(topics=None),
        )
    except (KafkaError, KeyError):
        return -1
    if answer.error_code != ErrorCode.NONE:
        return -1
    return sum(len(topic.partitions) for topic in answer.topics)


def replicas_of(experiment: Experiment) -> list[list[int]]:
    """Return where the partitions are."""
    assignment = experiment.cluster.state.assignment(experiment.topic)
    assert assignment is not None
    return [assignment[number] for number in range(PARTITIONS)]


def command(experiment: Experiment, folder: Path, *arguments: str) -> GuardedProcess:
    """Run `ottla`, as a user would."""
    bootstrap = ("-b", experiment.cluster.bootstrap)
    return GuardedProcess([sys.executable, "-m", "ottla.client.cli", *arguments, *bootstrap], folder / "ottla.log")


def all_on_three() -> list[list[int]]:
    """Return the replicas that a cluster of three brokers would have."""
    return [[number % 3 + 1, (number + 1) % 3 + 1, (number + 2) % 3 + 1] for number in range(PARTITIONS)]


@pytest.mark.parametrize("victim", ["receiver", "controller"])
def test_killing_a_broker_during_a_balance_loses_nothing(experiment: Experiment, tmp_path: Path, victim: str) -> None:
    """The plan goes on, with the next controller if need be, and the command sees its end."""
    cluster = experiment.cluster
    experiment.start(all_on_three())
    experiment.wait_for_acks(100)
    balance = command(experiment, tmp_path, "cluster", "balance", *LIMITS)
    try:
        until(lambda: moving(cluster) > 0, "partitions move")
        killed = 4 if victim == "receiver" else controller_of(cluster)
        with experiment.fault(f"kill {victim} during balance", f"broker {killed}", ACK_GAP_MAX_S) as fault:
            left = moving(cluster)
            fault.proof = f"{kill(cluster, killed)}, with {left} partitions to move"
            experiment.wait_for_acks(20)
        cluster.start_brokers(killed)
        assert balance.wait(PATIENCE_S) == 0, (tmp_path / "ottla.log").read_text()
    finally:
        if balance.poll() is None:
            balance.end(signal.SIGKILL)
    assert moving(cluster) == 0
    experiment.replicas = replicas_of(experiment)
    held = [sum(broker in replicas for replicas in experiment.replicas) for broker in BROKERS]
    assert all(len(set(replicas)) == 3 for replicas in experiment.replicas)
    assert max(held) - min(held) <= 2, held
    check_valid(experiment.finish())


@pytest.mark.parametrize("victim", ["drained", "controller"])
def test_killing_a_broker_during_a_drain_loses_nothing(experiment: Experiment, tmp_path: Path, victim: str) -> None:
    """The broker is empty at the end, also if it died on the way; nothing new is placed there."""
    cluster = experiment.cluster
    experiment.start(all_on_three())
    experiment.wait_for_acks(100)
    controller = controller_of(cluster)
    drained = next(broker for broker in (1, 2, 3) if broker != controller)
    drain = command(experiment, tmp_path, "broker", "drain", str(drained), *LIMITS)
    try:
        until(lambda: moving(cluster) > 0, "partitions move")
        killed = drained if victim == "drained" else controller
        with experiment.fault(f"kill {victim} during drain", f"broker {killed}", ACK_GAP_MAX_S) as fault:
            left = moving(cluster)
            fault.proof = f"{kill(cluster, killed)}, with {left} partitions to move"
            experiment.wait_for_acks(20)
        cluster.start_brokers(killed)
        assert drain.wait(PATIENCE_S) == 0, (tmp_path / "ottla.log").read_text()
    finally:
        if drain.poll() is None:
            drain.end(signal.SIGKILL)
    assert moving(cluster) == 0
    experiment.replicas = replicas_of(experiment)
    assert all(drained not in replicas and len(set(replicas)) == 3 for replicas in experiment.replicas)
    check_valid(experiment.finish())
