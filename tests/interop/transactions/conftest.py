"""The brokers of this folder: ours, and in `make test-all` Apache Kafka's, on which the same tests must pass."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from tests.faults.cluster import Cluster
from tests.kit.broker_process import BrokerProcess
from tests.kit.kafka_process import KafkaProcess, kafka_or_skip, new_kafka
from tests.kit.zookeeper import ZooKeeper, ZooKeeperServer

OPTIONS = (
    "transaction.state.log.num.partitions=3",
    # Kafka looks for transactions that take too long every ten seconds.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=200",
)
# One partition for all transactional ids, so that we know who coordinates.
CLUSTER_OPTIONS = (
    "transaction.state.log.num.partitions=1",
    "transaction.state.log.replication.factor=3",
    "transaction.state.log.min.isr=2",
)
KINDS = ("ottla", pytest.param("kafka-3.9", marks=pytest.mark.long))


@pytest.fixture(scope="module", params=KINDS)
def broker(
    request: pytest.FixtureRequest, zookeeper_server: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """A broker that soon aborts transactions that take too long."""
    with new_broker(request.param, tmp_path_factory.mktemp("broker"), zookeeper_server, *OPTIONS) as process:
        yield process


def new_broker(kind: str, folder: Path, zookeeper_server: ZooKeeperServer, *options: str) -> BrokerProcess:
    """Return a broker of one of KINDS, alone in its cluster and not started."""
    if kind == "ottla":
        return BrokerProcess(folder, ZooKeeper(zookeeper_server).connect, *options)
    return new_kafka(kind, folder, zookeeper_server, *options)


@pytest.fixture(
    params=[
        pytest.param(BrokerProcess, id="ottla"),
        # Says whether the test is right about Kafka, in a minute and more.
        pytest.param(KafkaProcess, id="kafka-3.9", marks=pytest.mark.long_faults),
    ]
)
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """Three brokers that a test may kill; those who use it are `long`."""
    if request.param is KafkaProcess:
        kafka_or_skip()
    made = Cluster(tmp_path, *CLUSTER_OPTIONS, process=request.param)
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.fixture
def transactional_id() -> str:
    """An id that no other producer has."""
    return f"id-{uuid4().hex}"


@pytest.fixture
def group() -> str:
    """A name that no other group has."""
    return f"group-{uuid4().hex}"
