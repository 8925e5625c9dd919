"""Fixtures for the fault tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.faults.cluster import Cluster
from tests.faults.experiment import FIGURES, Experiment
from tests.faults.shared_clusters import Kind, SharedClusters, lent
from tests.kit.broker_process import BrokerProcess
from tests.kit.zookeeper import ZooKeeper, ZooKeeperServer

_GAP = "longest gap"
_FOLDER = Path(__file__).parent
_CLUSTERS = pytest.StashKey[SharedClusters]()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark all tests of this folder: `make faults` runs them, and the long ones that other folders have."""
    item.add_marker(pytest.mark.faults)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """End the clusters when tests of other folders follow: idle ones cost a tenth of a processor all together."""
    try:
        return (yield)
    finally:
        clusters = item.config.stash.get(_CLUSTERS, None)
        if clusters is not None and (nextitem is None or _FOLDER not in nextitem.path.parents):
            clusters.close()


@pytest.fixture(scope="session")
def hasty_broker(
    zookeeper_server: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """A broker for all tests of bad input, with a deadline for frames that a test can wait for."""
    folder, connect = tmp_path_factory.mktemp("hasty-broker"), ZooKeeper(zookeeper_server).connect
    with BrokerProcess(folder, connect, "ottla.connection.frame.timeout.ms=1000") as shared:
        yield shared


@pytest.fixture(params=["PLAINTEXT", pytest.param("SASL_SSL", marks=pytest.mark.long_faults)])
def protocol(request: pytest.FixtureRequest) -> str:
    """What all listeners of a cluster speak; with SASL_SSL it also has ACLs."""
    return str(request.param)


@pytest.fixture(scope="session")
def shared_clusters(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedClusters]:
    """The clusters that the fault tests of a worker use one after the other."""
    made = pytestconfig.stash[_CLUSTERS] = SharedClusters(tmp_path_factory.mktemp("clusters"))
    yield made
    made.close()


@pytest.fixture
def cluster(request: pytest.FixtureRequest, protocol: str) -> Iterator[Cluster]:
    """Three brokers and a ZooKeeper on the loopback interface. A test may harm them."""
    yield from lent(request, Kind(protocol))


@pytest.fixture
def networked_cluster(request: pytest.FixtureRequest, protocol: str) -> Iterator[Cluster]:
    """Three brokers and a ZooKeeper, each on a host of its own. A test may harm them, and the network between them."""
    yield from lent(request, Kind(protocol, is_networked=True))


@pytest.fixture
def experiment(cluster: Cluster, tmp_path: Path) -> Iterator[Experiment]:
    """A workload that is not started yet."""
    made = Experiment(cluster, tmp_path)
    yield made
    made.close()


@pytest.fixture
def networked_experiment(networked_cluster: Cluster, tmp_path: Path) -> Iterator[Experiment]:
    """A workload that is not started yet, on hosts between which packets can be dropped."""
    made = Experiment(networked_cluster, tmp_path)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def figures(record_property: Callable[[str, object], None]) -> Iterator[None]:
    """Put how long the faults of a test were felt into its report, which comes to whoever started the workers."""
    FIGURES.clear()
    yield
    for line in FIGURES:
        record_property(_GAP, line)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show how long the faults of this run were felt."""
    reports = [report for reports in terminalreporter.stats.values() for report in reports]
    lines = [
        value
        for report in reports
        if getattr(report, "when", None) == "teardown"
        for name, value in report.user_properties
        if name == _GAP
    ]
    if lines:
        terminalreporter.section("longest gaps between acknowledgements")
        for line in lines:
            terminalreporter.line(str(line))
