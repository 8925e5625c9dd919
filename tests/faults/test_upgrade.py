"""Two versions of Ottla in one cluster, while its brokers are upgraded and rolled back one by one, under load."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.checker.truth import Outcome
from tests.faults.checkouts import VersionedBroker, earlier_checkout
from tests.faults.cluster import Cluster
from tests.faults.experiment import Experiment, check_valid
from tests.faults.steps import ACK_GAP_MAX_S
from tests.faults.transaction_experiment import TransactionExperiment
from tests.faults.up_cluster import UpCluster, said_until


class VersionedCluster(Cluster):
    """Three brokers, each of which can be restarted with the other version."""

    def __init__(self, folder: Path, earlier: Path, protocol: str) -> None:
        super().__init__(folder, process=VersionedBroker, protocol=protocol)
        self._earlier = earlier
        for broker in self.brokers:
            self.choose(broker, is_earlier=True)

    def choose(self, broker: int, *, is_earlier: bool) -> Path:
        """Have a broker run the earlier or the present version from its next start on; return where its code is."""
        process = self.brokers[broker]
        assert isinstance(process, VersionedBroker)
        process.checkout = self._earlier if is_earlier else None
        code = process.where_its_code_is()
        assert code.is_relative_to(self._earlier) == is_earlier
        return code

    def controller_last(self) -> list[int]:
        """Return the brokers in the order in which they should be restarted."""
        controller = self.state.controller()
        return [*(broker for broker in self.brokers if broker != controller), controller]


@pytest.fixture(scope="session")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The earlier version, unpacked."""
    return earlier_checkout(tmp_path_factory.mktemp("earlier"))


@pytest.fixture
def versioned_cluster(earlier: Path, tmp_path: Path, protocol: str) -> Iterator[VersionedCluster]:
    """A cluster in which all brokers run the earlier version."""
    made = VersionedCluster(tmp_path, earlier, protocol)
    try:
        made.start()
        yield made
    finally:
        made.close()


def restart_with(experiment: Experiment, broker: int, *, is_earlier: bool) -> None:
    """Stop a broker as an operator does, and start the other version of it on its data."""
    cluster = experiment.cluster
    assert isinstance(cluster, VersionedCluster)
    version = "earlier" if is_earlier else "present"
    with experiment.fault(f"restart with the {version} version", f"broker {broker}", ACK_GAP_MAX_S) as fault:
        assert cluster.brokers[broker].stop() == 0
        code = cluster.choose(broker, is_earlier=is_earlier)
        cluster.start_brokers(broker)
        fault.proof = f"exit code 0, then {code}"
        experiment.wait_for_full_isr()
        experiment.wait_for_acks(20)


def test_a_broker_of_this_version_works_beside_those_of_an_earlier_one(
    versioned_cluster: VersionedCluster, tmp_path: Path
) -> None:
    """The controller of the earlier version tells it what to do; both versions lead, and copy from each other."""
    experiment = Experiment(versioned_cluster, tmp_path)
    try:
        experiment.start()
        restart_with(experiment, versioned_cluster.controller_last()[0], is_earlier=False)
        check_valid(experiment.finish())
    finally:
        experiment.close()


@pytest.mark.long_faults
def test_all_brokers_are_upgraded_and_rolled_back(versioned_cluster: VersionedCluster, tmp_path: Path) -> None:
    """Each step leaves both versions with all records, and idempotent producers notice nothing."""
    experiment = Experiment(versioned_cluster, tmp_path)
    try:
        experiment.start()
        for is_earlier in (False, True):
            for broker in versioned_cluster.controller_last():
                restart_with(experiment, broker, is_earlier=is_earlier)
        report = experiment.finish()
    finally:
        experiment.close()

    check_valid(report)
    assert report.outcomes[Outcome.FAIL] == 0
    assert report.outcomes[Outcome.INFO] == 0


@pytest.mark.long_faults
def test_transactions_go_on_while_all_brokers_are_upgraded(versioned_cluster: VersionedCluster, tmp_path: Path) -> None:
    """Coordinators of both versions take over from each other; a transaction happens as a whole or not at all."""
    experiment = TransactionExperiment(versioned_cluster, tmp_path)
    try:
        experiment.start()
        for is_earlier in (False, True):
            for broker in versioned_cluster.controller_last():
                restart_with(experiment, broker, is_earlier=is_earlier)
        check_valid(experiment.finish())
    finally:
        experiment.close()


@pytest.mark.long_faults
def test_a_local_cluster_is_upgraded_by_a_rolling_restart(earlier: Path, tmp_path: Path) -> None:
    """`ottla up` of the earlier version has started it. Ctrl-C leaves both versions in it, and no broker down."""
    cluster = UpCluster(tmp_path)
    experiment = Experiment(cluster, tmp_path)
    try:
        cluster.up(earlier)
        experiment.start()
        before = cluster.pids()
        with experiment.fault("rolling restart", "all brokers", ACK_GAP_MAX_S) as fault:
            with cluster.command("cluster", "restart", "--rolling") as restart:
                said_until(restart, " stopped")
                restart.send_signal(signal.SIGINT)
                _, error = restart.communicate()
            assert (restart.returncode, "you asked to stop" in error.decode()) == (130, True), error
            halfway = cluster.pids()
            assert len(set(halfway.values()).intersection(before.values())) == 2
            assert all(broker.is_running for broker in cluster.brokers.values())
            experiment.wait_for_acks(20)
            code, said = cluster.rolling_restart()
            assert code == 0, said
            after = cluster.pids()
            assert not set(after.values()).intersection(before.values())
            assert len(set(after.values()).intersection(halfway.values())) == 1
            fault.proof = said
        # The earlier version had none.
        assert "broker.rack=" in (cluster.directory / "broker-1" / "server.properties").read_text()
        check_valid(experiment.finish())
    finally:
        experiment.close()
        cluster.close()
