"""Transactions while brokers come to harm (F41, F48): all of one is read, or nothing, and each input is taken once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.faults.chance import MIX_SECONDS, SOAK_SECONDS, harm_by_chance
from tests.faults.cluster import ALONE, BROKER_IDS, SESSION_TIMEOUT_S, Cluster
from tests.faults.experiment import check_valid, wait_seconds
from tests.faults.shared_clusters import Kind, lent
from tests.faults.steps import kill, others, until_known
from tests.faults.transaction_experiment import ACK_GAP_MAX_S, TransactionExperiment
from tests.kit.broker_process import BrokerProcess, process_state
from tests.kit.kafka_process import KafkaProcess, kafka_or_skip

from ottla.broker.coordination.placement import CONSUMER_OFFSETS, TRANSACTION_STATE

long_faults = pytest.mark.long_faults


@pytest.fixture(params=["ottla", pytest.param("kafka", marks=long_faults)])
def cluster(request: pytest.FixtureRequest, tmp_path: Path, protocol: str) -> Iterator[Cluster]:
    """Three brokers, one of which coordinates all transactions, and one all groups; ours, then Apache Kafka's."""
    if request.param == "ottla":
        yield from lent(request, Kind(protocol))
        return
    if protocol != "PLAINTEXT":
        pytest.skip("Kafka shows in the clear what is to be compared with")
    kafka_or_skip()
    with closing(Cluster(tmp_path, process=KafkaProcess)) as made:
        made.start()
        yield made


@pytest.fixture
def experiment(cluster: Cluster, tmp_path: Path) -> Iterator[TransactionExperiment]:
    """Workers that are not started yet."""
    is_ours = not isinstance(cluster.brokers[1], KafkaProcess)
    with closing(TransactionExperiment(cluster, tmp_path, are_answers_exact=is_ours)) as made:
        yield made


@long_faults
@pytest.mark.parametrize("kind", ["ottla", "kafka"])
def test_f41_killing_the_only_broker_tears_no_transaction(tmp_path: Path, kind: str) -> None:
    """It knows everything when it is back: what was committed, and what is to be aborted."""
    if kind == "kafka":
        kafka_or_skip()
    process = KafkaProcess if kind == "kafka" else BrokerProcess
    with closing(Cluster(tmp_path, *ALONE, broker_ids=(1,), process=process)) as cluster:
        cluster.start()
        with closing(TransactionExperiment(cluster, tmp_path, are_answers_exact=kind == "ottla")) as experiment:
            experiment.start([[1]] * experiment.partitions)
            with experiment.coordinator_fault("kill", 1) as fault:
                fault.proof = kill(experiment.cluster, 1)
                experiment.cluster.start_brokers(1)

            check_valid(experiment.finish())


@pytest.mark.parametrize("log", [TRANSACTION_STATE, pytest.param(CONSUMER_OFFSETS, marks=long_faults)])
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


@long_faults
def test_f41_killing_one_coordinator_after_the_other_tears_no_transaction(experiment: TransactionExperiment) -> None:
    """Each finds transactions in another state: begun, decided, with some of their markers, with all of them."""
    cluster = experiment.cluster
    experiment.start()
    for _ in range(4):
        coordinator = experiment.coordinator()
        with experiment.coordinator_fault("kill coordinator", coordinator) as fault:
            gone = kill(cluster, coordinator)
            successor = experiment.wait_for_coordinator_other_than(coordinator)
            fault.proof = f"{gone}; broker {successor} coordinates"
        cluster.start_brokers(coordinator)
        experiment.wait_for_full_isr()

    check_valid(experiment.finish())


@long_faults
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


@long_faults
def test_f41_killing_a_leader_tears_no_transaction(experiment: TransactionExperiment) -> None:
    """Its transactions are open, or wait for their marker; the next leader knows them, and gets the markers."""
    cluster = experiment.cluster
    experiment.start()
    coordinator = experiment.coordinator()
    leader = others(coordinator)[0]
    with experiment.coordinator_fault("kill leader", leader) as fault:
        gone = kill(cluster, leader)
        for partition in range(experiment.partitions):
            experiment.wait_for(lambda state: state.leader not in (-1, leader), partition)
        fault.proof = f"{gone}, and leads nothing"
    cluster.start_brokers(leader)
    experiment.wait_for_full_isr()

    check_valid(experiment.finish())


@long_faults
def test_f41_with_too_few_replicas_transactions_wait_and_then_end(experiment: TransactionExperiment) -> None:
    """Neither a decision nor a marker is written by one broker alone; both are tried until the others are back."""
    cluster = experiment.cluster
    experiment.start()
    alone = experiment.coordinator()
    with experiment.coordinator_fault("kill the others", alone) as fault:
        for broker in others(alone):
            kill(cluster, broker)
        wait_seconds(2 * SESSION_TIMEOUT_S)
        fault.proof = f"broker {alone} was alone, below min.insync.replicas"
        cluster.start_brokers(*others(alone))
        experiment.wait_for_full_isr()

    check_valid(experiment.finish())


@long_faults
def test_f41_killing_all_brokers_tears_no_transaction(experiment: TransactionExperiment) -> None:
    """What EndTxn acknowledged is in the page caches, and comes back with the processes."""
    cluster = experiment.cluster
    experiment.start()
    with experiment.fault("kill all", "all brokers", 2 * ACK_GAP_MAX_S) as fault:
        pids = {broker: process.pid for broker, process in cluster.brokers.items()}
        for process in cluster.brokers.values():
            process.kill()
        assert not any(map(process_state, pids.values()))
        fault.proof = "no process is left"
        cluster.start_brokers(*BROKER_IDS)
        experiment.wait_for_commits(2)

    check_valid(experiment.finish())


@long_faults
def test_f41_transactions_go_on_without_zookeeper(experiment: TransactionExperiment) -> None:
    """Coordinators and leaders need it only to be elected, and for new producer ids."""
    cluster = experiment.cluster
    experiment.start()
    with experiment.fault("kill ZooKeeper", "ZooKeeper", ACK_GAP_MAX_S) as fault:
        cluster.zookeeper.kill()
        wait_seconds(4 * SESSION_TIMEOUT_S)
        cluster.zookeeper.start()
        until_known(lambda: cluster.state.brokers() == set(BROKER_IDS), "all are registered")
        fault.proof = f"the process was gone for {4 * SESSION_TIMEOUT_S:.0f} s"
        experiment.wait_for_commits(2)

    check_valid(experiment.finish())


@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(MIX_SECONDS, marks=[long_faults, pytest.mark.timeout(1200)], id="minutes"),
        # What was begun before the end is healed and read after it.
        pytest.param(SOAK_SECONDS, marks=[pytest.mark.soak, pytest.mark.timeout(2 * SOAK_SECONDS + 1200)], id="soak"),
    ],
)
def test_f48_faults_by_chance_tear_no_transaction(networked_cluster: Cluster, tmp_path: Path, seconds: float) -> None:
    """Sometimes the next one comes before the last is overcome."""
    with closing(TransactionExperiment(networked_cluster, tmp_path)) as experiment:
        experiment.seconds_max = seconds + 600
        experiment.start()
        harm_by_chance(experiment, seconds, lambda: experiment.wait_for_commits(2))

        check_valid(experiment.finish())
