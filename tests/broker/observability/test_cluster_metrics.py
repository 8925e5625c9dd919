"""What a broker shows of its cluster: real partitions, and as little as possible of the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.registry import CollectorRegistry
from tests.broker.handlers.data_path import Broker, batch, running_broker

from ottla.broker.cluster.zookeeper import SessionState
from ottla.broker.common.timings import RequestMetrics
from ottla.broker.controller.context import ControllerContext, Replica, ReplicaAssignment
from ottla.broker.controller.partition_states import ReplicaState
from ottla.broker.controller.stats import ControllerStats, ElectionCounters, stats_of
from ottla.broker.observability.broker_metrics import BrokerCollector
from ottla.broker.observability.cluster_metrics import ClusterCollector, replica_counts
from ottla.broker.observability.load_metrics import LoadCollector
from ottla.broker.observability.partition_metrics import PartitionCollector
from ottla.protocol.api import Api
from ottla.protocol.identifiers import TopicPartition

OUT_OF_OFFICE = ControllerStats(False, -1, 0, 0, 0.0, 0.0)
SHRUNK = {"min.insync.replicas": "2"}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker with two replicas of each partition: one partition is whole, one has shrunk, one is followed."""
    with running_broker(tmp_path, {"shrunk": SHRUNK}) as broker:
        broker.lead("whole", isr=(1, 2))
        broker.lead("shrunk", isr=(1,))
        broker.lead("followed", leader=2, isr=(1, 2))
        yield broker


def shown(
    broker: Broker, *, stats: ControllerStats = OUT_OF_OFFICE, state: SessionState = SessionState.CONNECTED
) -> CollectorRegistry:
    """Return what the broker shows."""
    controller: Any = SimpleNamespace(stats=stats, queue_size=3)
    zookeeper: Any = SimpleNamespace(state=state, entered=Counter({SessionState.SUSPENDED: 3, SessionState.EXPIRED: 1}))
    membership: Any = SimpleNamespace(broker_epoch=77)
    registry = CollectorRegistry()
    services = broker.services
    registry.register(ClusterCollector(services.partitions, controller, services.metadata, zookeeper, membership))
    return registry


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    """Return one number."""
    return registry.get_sample_value(name, labels)


def test_the_leader_counts_what_is_wrong_with_a_partition(broker: Broker) -> None:
    """A follower does not, so that a sum over all brokers is right."""
    counts = replica_counts(broker.services.partitions)
    assert (counts.partitions, counts.leaders) == (3, 2)
    assert (counts.under_replicated, counts.under_min_isr, counts.at_min_isr) == (1, 1, 0)
    registry = shown(broker)
    assert value(registry, "kafka_server_replicamanager_underreplicatedpartitions") == 1
    assert value(registry, "kafka_server_replicamanager_leadercount") == 2
    assert value(registry, "kafka_server_replicamanager_isrshrinks_total") == 0


def test_lags_are_shown_by_leader(broker: Broker) -> None:
    """The largest, and the sum; not a row for each partition."""
    partitions: Any = broker.services.partitions
    lags = {TopicPartition("followed", 0): 7, TopicPartition("gone", 0): 9}
    partitions.fetchers = SimpleNamespace(lags=lambda: lags, failing=lambda: 1)
    registry = shown(broker)
    assert value(registry, "kafka_server_replicafetchermanager_maxlag", clientId="Replica") == 7
    assert value(registry, "kafka_server_replicafetchermanager_failedpartitionscount", clientId="Replica") == 1
    assert value(registry, "ottla_fetcher_lag_max", leader="2") == 7
    assert value(registry, "ottla_fetcher_lag_sum", leader="2") == 7


def test_a_move_between_log_directories_shows_its_lag(tmp_path: Path) -> None:
    """Until it is done."""
    name, labels = "kafka_server_replicaalterlogdirsmanager_maxlag", {"clientId": "ReplicaAlterLogDirs"}
    directories = [str(tmp_path / "one"), str(tmp_path / "two")]
    with running_broker(tmp_path, {}, {"log.dirs": ",".join(directories)}) as broker:
        broker.lead("moved")
        moved = TopicPartition("moved", 0)
        broker.services.partitions.get(moved).append(batch(b"a", b"b"), required_acks=1)
        assert value(shown(broker), name, **labels) == 0
        broker.services.log_dir_moves.move(moved, directories[1])
        assert value(shown(broker), name, **labels) == 2
        broker.services.log_dir_moves.advance()
        assert value(shown(broker), name, **labels) == 0


def test_the_controller_shows_the_cluster_and_its_elections(broker: Broker) -> None:
    """On the other brokers these are 0, but for the epoch, which all have been told."""
    prefix = "kafka_controller_kafkacontroller"
    registry = shown(
        broker, stats=ControllerStats(True, 5, 9, 1, 0.25, 0.05, live_brokers=3, partitions=4, offline_partitions=2)
    )
    assert value(registry, f"{prefix}_activecontrollercount") == 1
    assert value(registry, f"{prefix}_activebrokercount") == 3
    assert value(registry, f"{prefix}_offlinepartitionscount") == 2
    assert value(registry, "kafka_controller_controllerstats_uncleanleaderelections_total") == 1
    assert value(registry, "kafka_controller_controllerchannelmanager_totalqueuesize") == 3
    assert value(registry, "ottla_controller_elections_total") == 9
    assert value(registry, "ottla_controller_election_seconds_total") == 0.25
    assert value(registry, "ottla_controller_epoch") == 5
    assert value(shown(broker), f"{prefix}_activecontrollercount") == 0
    assert value(shown(broker), "ottla_controller_epoch") == 1


def test_producers_that_partitions_remember_are_counted(broker: Broker) -> None:
    """Once for each partition that they wrote to."""
    partition = broker.services.partitions.find(TopicPartition("whole", 0))
    assert partition is not None
    assert value(shown(broker), "kafka_server_replicamanager_produceridcount") == 0
    for producer_id in (7, 8):
        records = batch(b"a", producer_id=producer_id, producer_epoch=0, base_sequence=0)
        partition.append(records, required_acks=1)
    assert value(shown(broker), "kafka_server_replicamanager_produceridcount") == 2


def test_topics_that_are_being_deleted_are_counted_until_their_replicas_are_gone(broker: Broker) -> None:
    """Those that have to wait for a dead broker are told apart."""
    states = (ReplicaState.DELETION_SUCCESSFUL, ReplicaState.DELETION_STARTED, ReplicaState.DELETION_INELIGIBLE)
    context = ControllerContext(1, 1)
    context.assignments = {"doomed": {0: ReplicaAssignment((1, 2, 3))}, "kept": {0: ReplicaAssignment((1,))}}
    context.replica_states = {Replica("doomed", 0, node): state for node, state in enumerate(states, 1)}
    context.deleting, context.ineligible = {"doomed"}, {"doomed"}
    registry = shown(broker, stats=stats_of(context, ElectionCounters()))

    prefix = "kafka_controller_kafkacontroller"
    assert value(registry, f"{prefix}_topicstodeletecount") == 1
    assert value(registry, f"{prefix}_replicastodeletecount") == 2
    assert value(registry, f"{prefix}_topicsineligibletodeletecount") == 1
    assert value(registry, f"{prefix}_replicasineligibletodeletecount") == 1
    assert value(shown(broker), f"{prefix}_topicstodeletecount") == 0


def test_the_state_of_the_session_is_one_of_all(broker: Broker) -> None:
    """With the number of times that it was lost."""
    registry = shown(broker, state=SessionState.IN_DOUBT)
    states = {state.value: value(registry, "ottla_zookeeper_session", state=state.value) for state in SessionState}
    assert states == {state.value: int(state is SessionState.IN_DOUBT) for state in SessionState}
    assert value(registry, "kafka_server_sessionexpirelistener_zookeeperdisconnects_total") == 3
    assert value(registry, "kafka_server_sessionexpirelistener_zookeeperexpires_total") == 1
    assert value(registry, "ottla_broker_epoch") == 77


def test_every_metric_is_in_the_documentation(broker: Broker) -> None:
    """With the name that a query uses."""
    page = (Path(__file__).parents[3] / "docs" / "METRICS.md").read_text()
    network: Any = SimpleNamespace(
        queue=(),
        connections=lambda: (),
        workers=SimpleNamespace(count=2),
        counts=SimpleNamespace(by_listener={"PLAINTEXT": 1}, accepted={"PLAINTEXT": 3}, rejected=0, frames_refused=0),
        security={"SASL_SSL": (SimpleNamespace(failures=0), SimpleNamespace(successes=1, failures=0))},
        bytes_sendfile=0,
        bytes_copied=0,
    )
    requests = RequestMetrics()
    requests.observe(Api.FETCH, 0.001, 0.001, 0.001, 0.001)
    partitions, metadata = broker.services.partitions, broker.services.metadata
    families = [
        *BrokerCollector(network, partitions, requests).collect(),
        *shown(broker).collect(),
        *LoadCollector(network, requests).collect(),
        *PartitionCollector(partitions, metadata, lambda: True, lambda: True).collect(),
    ]
    names = {sample.name for family in families for sample in family.samples}
    assert len(names) > 40
    assert sorted(name for name in names if f"`{name}`" not in page) == []
