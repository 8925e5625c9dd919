"""Partitions one by one, and how busy a broker is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.registry import CollectorRegistry
from tests.broker.handlers.data_path import Broker, batch, running_broker
from tests.kit.clock import FakeClock

from ottla.broker.common.timings import RequestMetrics
from ottla.broker.observability.growth_rate import GrowthRate
from ottla.broker.observability.load_metrics import LoadCollector
from ottla.broker.observability.partition_metrics import PartitionCollector
from ottla.protocol.api import Api
from ottla.protocol.identifiers import TopicPartition

ROWS = {"topic": "whole", "partition": "0"}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker that leads a whole partition and a shrunk one, and follows a third."""
    with running_broker(tmp_path, {"shrunk": {"min.insync.replicas": "2"}}) as broker:
        broker.lead("whole", isr=(1, 2))
        broker.lead("shrunk", isr=(1,), replicas=(2, 1))
        broker.lead("followed", leader=2, isr=(1, 2))
        yield broker


def shown(broker: Broker, *, is_controller: bool = True, shows_partitions: bool = True) -> CollectorRegistry:
    """Return what the broker shows."""
    services, registry = broker.services, CollectorRegistry()
    registry.register(
        PartitionCollector(services.partitions, services.metadata, lambda: is_controller, lambda: shows_partitions)
    )
    return registry


def test_a_partition_is_shown_by_its_leader_alone(broker: Broker) -> None:
    """So that a sum over the brokers counts it once."""
    registry = shown(broker)
    assert registry.get_sample_value("kafka_topic_partition_replicas", ROWS) == 2
    assert registry.get_sample_value("kafka_topic_partition_replicas", ROWS | {"topic": "followed"}) is None


@pytest.mark.parametrize(
    ("name", "whole", "shrunk"),
    [
        ("kafka_cluster_partition_insyncreplicascount", 2, 1),
        ("kafka_cluster_partition_underreplicated", 0, 1),
        ("kafka_cluster_partition_underminisr", 0, 1),
        ("kafka_cluster_partition_atminisr", 0, 0),
        ("kafka_topic_partition_under_replicated_partition", 0, 1),
        ("kafka_topic_partition_leader", 1, 1),
        ("kafka_topic_partition_leader_is_preferred", 1, 0),
        ("kafka_topic_partition_current_offset", 0, 0),
    ],
)
def test_a_partition_shows_what_it_lacks(broker: Broker, name: str, whole: int, shrunk: int) -> None:
    """A whole partition beside one that has lost its first replica."""
    registry = shown(broker)
    assert registry.get_sample_value(name, ROWS) == whole
    assert registry.get_sample_value(name, ROWS | {"topic": "shrunk"}) == shrunk


def test_an_open_transaction_holds_back_readers_of_committed_records(broker: Broker) -> None:
    """The lag is that of the last stable offset behind the high watermark."""
    broker.lead("alone", replicas=(1,))
    partition = broker.services.partitions.find(TopicPartition("alone", 0))
    assert partition is not None
    name, labels = "kafka_cluster_partition_laststableoffsetlag", ROWS | {"topic": "alone"}
    partition.append(batch(b"a"), required_acks=1)
    assert shown(broker).get_sample_value(name, labels) == 0
    records = batch(b"b", b"c", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    begun = partition.validated(records, 1)
    partition.append_validated(begun, 1, partition.begin_verification(begun))
    assert shown(broker).get_sample_value(name, labels) == 2


def test_topics_are_shown_by_the_controller_alone(broker: Broker) -> None:
    """The others show no topic, and no broker."""
    assert shown(broker).get_sample_value("kafka_topic_partitions", {"topic": "followed"}) == 1
    assert shown(broker).get_sample_value("kafka_brokers") == 1
    others = shown(broker, is_controller=False)
    assert others.get_sample_value("kafka_topic_partitions", {"topic": "followed"}) is None
    assert others.get_sample_value("kafka_brokers") == 0


def test_partitions_can_be_left_out(broker: Broker) -> None:
    """Topics stay."""
    registry = shown(broker, shows_partitions=False)
    assert registry.get_sample_value("kafka_topic_partition_replicas", ROWS) is None
    assert registry.get_sample_value("kafka_topic_partitions", {"topic": "whole"}) == 1


def test_a_rate_is_that_of_the_last_minute() -> None:
    """As far as somebody asked in time; the first answer is since the beginning."""
    clock, number = FakeClock(0.0), 0.0
    rate = GrowthRate(lambda: number, clock)
    assert rate() == 0
    clock.now, number = 10.0, 50.0
    assert rate() == 5
    clock.now, number = 69.0, 50.0
    assert rate() == pytest.approx(50 / 69)
    clock.now = 71.0
    assert rate() == 0


def test_a_rate_remembers_few_looks() -> None:
    """However often somebody asks."""
    clock = FakeClock(0.0)
    rate = GrowthRate(clock, clock)
    for _ in range(100_000):
        clock.now += 0.01
        assert rate() == pytest.approx(1)
    assert len(rate._readings) < 70


def test_idle_shares_fall_with_the_time_that_workers_spend(tmp_path: Path) -> None:
    """Two workers that were never idle; and what the system counted of disks."""
    io = tmp_path / "io"
    io.write_text("rchar: 1\nread_bytes: 4096\nwrite_bytes: 8192\n")
    network: Any = SimpleNamespace(
        workers=SimpleNamespace(count=2), counts=SimpleNamespace(accepted=Counter({"PLAINTEXT": 1}))
    )
    requests, registry = RequestMetrics(), CollectorRegistry()
    registry.register(LoadCollector(network, requests, io))
    name = "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent"
    assert registry.get_sample_value(name) == 1
    requests.observe(Api.FETCH, 0, 1e9, 0, 0)
    assert registry.get_sample_value(name) == 0
    assert registry.get_sample_value("kafka_server_kafkaserver_linux_disk_read_bytes") == 4096
    assert registry.get_sample_value("kafka_server_kafkaserver_linux_disk_write_bytes") == 8192
    created = registry.get_sample_value(
        "kafka_server_socket_server_metrics_connection_creation_rate", {"listener": "PLAINTEXT"}
    )
    assert created == 0


def test_a_system_that_counts_no_disk_bytes_shows_none(tmp_path: Path) -> None:
    """Other systems than Linux."""
    network: Any = SimpleNamespace(workers=SimpleNamespace(count=2), counts=SimpleNamespace(accepted=Counter()))
    registry = CollectorRegistry()
    registry.register(LoadCollector(network, RequestMetrics(), tmp_path / "missing"))
    assert registry.get_sample_value("kafka_server_kafkaserver_linux_disk_read_bytes") is None
