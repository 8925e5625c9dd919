"""Transactions while brokers come to harm (F41): all of one is read, or nothing, and each input is taken once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.faults.cluster import ALONE, SESSION_TIMEOUT_S, Cluster, process_state
from tests.faults.experiment import check_valid, wait_seconds
from tests.faults.steps import kill, until_known
from tests.faults.transaction_experiment import TransactionExperiment
from tests.kit.kafka_process import KafkaProcess, kafka_or_skip

from ottla.broker.coordination.placement import CONSUMER_OFFSETS, TRANSACTION_STATE


@pytest.fixture(params=[pytest.param("kafka", marks=pytest.mark.long_faults)])
def experiment(tmp_path: Path) -> Iterator[TransactionExperiment]:
    """Workers that are not started yet, on three brokers of Apache Kafka."""
    kafka_or_skip()
    with closing(Cluster(tmp_path, process=KafkaProcess)) as cluster:
        cluster.start()
        with closing(TransactionExperiment(cluster, tmp_path, are_answers_exact=False)) as made:
            yield made


@pytest.fixture
def experiment_alone(tmp_path: Path) -> Iterator[TransactionExperiment]:
    """Workers that are not started yet, on one broker of Apache Kafka."""
    kafka_or_skip()
    with closing(Cluster(tmp_path, *ALONE, process=KafkaProcess, broker_ids=(1,))) as cluster:
        cluster.start()
        with closing(TransactionExperiment(cluster, tmp_path, are_answers_exact=False)) as made:
            yield made


@pytest.mark.long_faults
def test_f41_killing_the_only_broker_tears_no_transaction(experiment_alone: TransactionExperiment) -> None:
    """It knows everything when it is back: what was committed, and what is to be aborted."""
    experiment = experiment_alone
    experiment.start([[1]] * experiment.partitions)
    with experiment.coordinator_fault("kill", 1) as fault:
        fault.proof = kill(experiment.cluster, 1)
        experiment.cluster.start_brokers(1)

    check_valid(experiment.finish())


@pytest.mark.parametrize("log", [TRANSACTION_STATE, CONSUMER_OFFSETS])
def test_f41_killing_a_coordinator_tears_no_transaction(experiment: TransactionExperiment, log: str) -> None:
    """Another broker knows what was decided, and what the group has been given; it ends what was begun."""
    cluster = experiment.cluster
    experiment.start()
    coordinator = experiment.coordinator(log)
    with experiment.coordinator_fault("kill coordinator", coordinator) as fault:
        gone = kill(cluster, coordinator)
        successor = experiment.wait_for_coordinator_other_than(coordinator, log)
        fault.proof = f"{gone}; broker {successor} coordinates"
    cluster.start_brokers(coordinator)
    experiment.wait_for_full_isr()

    check_valid(experiment.finish())


def test_f41_a_coordinator_that_wakes_up_ends_no_transaction(experiment: TransactionExperiment) -> None:
    """Asleep for longer than its session, it still believes in its transactions; its markers are refused."""
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
