"""A pytest plugin: fixtures for tests on a real cluster, which is started when the first test asks for it.

    def test_orders_arrive(ottla_cluster, ottla_topic):
        with Producer(bootstrap_servers=ottla_cluster.bootstrap_servers) as producer:
            producer.send_and_wait(ottla_topic, b"an order")

`ottla_cluster` is a FaultCluster that all tests of the run share: `kill`, `stop`, `pause`, `resume`, `start` and
`restart` take a broker's id, `partition` and `heal` two of them; "zookeeper" is a name, too. It has one broker, or as
many as the ini option `ottla_brokers` says, or the mark `@pytest.mark.ottla(brokers=3)`: tests with the same number
share a cluster. `ottla_topic` is the name of a topic that only one test has; after that test what was killed, stopped,
paused or cut off in the cluster is well again. A cluster with options of its own is
`with FaultCluster(tmp_path, 3, {"num.partitions": "6"}) as cluster`.

`partition(1, 2)` lets nothing pass between two brokers, `partition(1, "zookeeper")` nothing between a broker and
ZooKeeper; clients reach all of them. It needs Linux, and no privileges: brokers talk to each other by relays.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ottla.client.testing.fault_cluster import FaultCluster

__all__ = ["FaultCluster", "ottla_cluster", "ottla_topic"]

_BROKERS_INI = "ottla_brokers"
# What the mark takes.
_ARGUMENTS = frozenset({"brokers", "partitions"})


def __getattr__(name: str) -> Any:
    # Pytest loads this module in every run: what starts clusters comes in with the first of them.
    if name != "FaultCluster":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ottla.client.testing.fault_cluster import FaultCluster

    return FaultCluster


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the ini option."""
    parser.addini(_BROKERS_INI, "how many brokers the fixture ottla_cluster has", default="1")


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    config.addinivalue_line(
        "markers", "ottla(brokers=1, partitions=1): the size of the test's ottla_cluster and ottla_topic"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Have the mark choose the cluster; an argument that it does not have is a mistake."""
    mark = metafunc.definition.get_closest_marker("ottla")
    if mark is not None and (mark.args or not _ARGUMENTS.issuperset(mark.kwargs)):
        wrong = ", ".join([*map(repr, mark.args), *sorted(set(mark.kwargs) - _ARGUMENTS)])
        raise pytest.UsageError(f"@pytest.mark.ottla takes brokers=N and partitions=N, not: {wrong}")
    if mark is not None and "brokers" in mark.kwargs and "ottla_cluster" in metafunc.fixturenames:
        brokers = mark.kwargs["brokers"]
        metafunc.parametrize("ottla_cluster", [brokers], indirect=True, ids=[f"brokers={brokers}"], scope="session")


@pytest.fixture(scope="session")
def _ottla_clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], FaultCluster]]:
    """All clusters of the run, by their number of brokers."""
    from ottla.client.testing.fault_cluster import FaultCluster

    clusters: dict[int, FaultCluster] = {}

    def cluster(brokers: int) -> FaultCluster:
        if brokers not in clusters:
            clusters[brokers] = FaultCluster(tmp_path_factory.mktemp("ottla-cluster"), brokers)
        return clusters[brokers]

    yield cluster
    for each in clusters.values():
        each.close()


@pytest.fixture(scope="session")
def ottla_cluster(request: pytest.FixtureRequest, _ottla_clusters: Callable[[int], FaultCluster]) -> FaultCluster:
    """A running cluster, with a ZooKeeper of its own, on free ports."""
    return _ottla_clusters(int(getattr(request, "param", request.config.getini(_BROKERS_INI))))


@pytest.fixture
def ottla_topic(request: pytest.FixtureRequest, ottla_cluster: FaultCluster) -> Iterator[str]:
    """The name of a topic that was made for this test, and is deleted after it."""
    from ottla.client.admin.results import NewTopic
    from ottla.sync import Admin

    mark = request.node.get_closest_marker("ottla")
    partitions = 1 if mark is None else mark.kwargs.get("partitions", 1)
    name = f"topic-{uuid.uuid4().hex}"
    with Admin(bootstrap_servers=ottla_cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(name, num_partitions=partitions)])
    yield name
    ottla_cluster.start()
    with Admin(bootstrap_servers=ottla_cluster.bootstrap_servers) as admin:
        # The test may have deleted it.
        admin.delete_topics([name], raise_errors=False)
