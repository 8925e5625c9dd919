"""What a broker shows of compaction, flushes, fetch sessions and batches that it refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.registry import CollectorRegistry
from tests.broker.handlers.data_path import Broker, batch, running_broker

from ottla.broker.common.timings import BUCKETS, RequestMetrics, Timing
from ottla.broker.observability.broker_metrics import BrokerCollector
from ottla.broker.observability.storage_metrics import StorageCollector
from ottla.broker.replication.leader.fetch_sessions import CachedPartition
from ottla.broker.storage.compaction.cleaners import Cleaners, CleanerState
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

MAGIC_POSITION, CRC_POSITION = 16, 17
FLUSHES = "kafka_log_logflushstats_logflushrateandtimems"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker that leads a plain topic and a compacted one."""
    with running_broker(tmp_path, {"compacted": {"cleanup.policy": "compact"}}) as broker:
        broker.lead("plain")
        broker.lead("compacted")
        yield broker


def collector(broker: Broker, cleaners: Any = None) -> StorageCollector:
    """What reads the broker."""
    services = broker.services
    return StorageCollector(
        cleaners or Cleaners(services.partitions.logs), services.group_commit, services.fetch_sessions
    )


def shown(broker: Broker, cleaners: Any = None) -> CollectorRegistry:
    """Return what the broker shows."""
    registry = CollectorRegistry()
    registry.register(collector(broker, cleaners))
    return registry


def test_the_state_of_compaction_is_shown(broker: Broker) -> None:
    """Logs that are left alone are counted by directory."""
    (log_dir,) = broker.services.partitions.logs.dirs
    cleaners = SimpleNamespace(state=lambda: CleanerState(1500, 0.755, {log_dir: 2}, 1))
    registry = shown(broker, cleaners)

    prefix = "kafka_log_logcleanermanager"
    assert registry.get_sample_value(f"{prefix}_time_since_last_run_ms") == 1500
    assert registry.get_sample_value(f"{prefix}_max_dirty_percent") == 75
    directory = {"logDirectory": str(log_dir.path)}
    assert registry.get_sample_value(f"{prefix}_uncleanable_partitions_count", directory) == 2
    assert registry.get_sample_value("kafka_log_logcleaner_deadthreadcount") == 1


def test_flushes_are_shown_with_their_times(broker: Broker) -> None:
    """Those of all log directories together, in milliseconds."""
    (worker,) = broker.services.group_commit.workers.values()
    for seconds in (0.002, 0.002, 0.5):
        worker.flush_times.add(seconds)
    registry = shown(broker)

    assert registry.get_sample_value(f"{FLUSHES}_count") == 3
    assert registry.get_sample_value(f"{FLUSHES}_sum") == pytest.approx(504)
    median = registry.get_sample_value(FLUSHES, {"quantile": "0.5"})
    assert median is not None
    assert 2 <= median < 3.1


def test_a_flush_is_timed_where_it_happens(broker: Broker) -> None:
    """One that has nothing to do is none."""
    partition = broker.services.partitions.find(TopicPartition("plain", 0))
    assert partition is not None
    partition.append(batch(b"a"), required_acks=1)
    assert broker.services.group_commit.flush([partition.log]) == {}

    assert shown(broker).get_sample_value(f"{FLUSHES}_count") == 1


def test_timings_can_be_added_up() -> None:
    """Without losing what lies beyond all buckets."""
    one, other = Timing(), Timing()
    one.add(BUCKETS[0])
    other.add(BUCKETS[0])
    other.add(BUCKETS[-1] * 2)
    one.include(other)

    assert (one.counts[0], one.counts[-1]) == (2, 1)
    assert one.total_seconds == 2 * BUCKETS[0] + 2 * BUCKETS[-1]


def test_fetch_sessions_are_shown_with_their_partitions(broker: Broker) -> None:
    """And how many had to go, which is none here."""
    body = FetchRequest(max_wait_ms=0, min_bytes=1, session_epoch=0, topics=[])
    listed = [
        CachedPartition(
            TopicPartition("plain", index),
            b"p" * 16,
            FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1),
        )
        for index in range(3)
    ]
    broker.services.fetch_sessions.context(body, 17, listed, [])
    registry = shown(broker)

    cache = "kafka_server_fetchsessioncache"
    assert registry.get_sample_value(f"{cache}_numincrementalfetchsessions") == 1
    assert registry.get_sample_value(f"{cache}_numincrementalfetchpartitionscached") == 3
    assert registry.get_sample_value(f"{cache}_incrementalfetchsessionevictions_total") == 0


def with_byte(data: bytes, position: int, value: int) -> bytes:
    """Change one byte."""
    return data[:position] + bytes([value]) + data[position + 1 :]


@pytest.mark.parametrize(
    ("topic", "records", "name"),
    [
        ("plain", with_byte(batch(b"a"), MAGIC_POSITION, 3), "invalidmagicnumberrecords"),
        ("plain", with_byte(batch(b"a"), CRC_POSITION, batch(b"a")[CRC_POSITION] ^ 1), "invalidmessagecrcrecords"),
        ("plain", batch(b"a", base_offset=5), "invalidoffsetorsequencerecords"),
        ("compacted", batch(b"a", key=None), "nokeycompactedtopicrecords"),
    ],
)
def test_a_refused_batch_is_counted_by_what_is_wrong_with_it(
    broker: Broker, topic: str, records: bytes, name: str
) -> None:
    """Each has a counter, and the others stay as they are."""
    data = PartitionProduceData(index=0, records=records)
    body = ProduceRequest(acks=1, timeout_ms=0, topic_data=[TopicProduceData(name=topic, partition_data=[data])])
    answer = broker.ask(Api.PRODUCE, 9, body)
    assert answer.responses[0].partition_responses[0].error_code != ErrorCode.NONE
    network: Any = SimpleNamespace()
    families = BrokerCollector(network, broker.services.partitions, RequestMetrics())._topic_metrics()
    counted = {
        sample.name: sample.value
        for family in families
        for sample in family.samples
        if "invalid" in sample.name or "nokey" in sample.name
    }

    assert len(counted) == 4
    assert {each for each, count in counted.items() if count} == {f"kafka_server_brokertopicmetrics_{name}_total"}


def test_every_metric_of_storage_is_in_the_documentation(broker: Broker) -> None:
    """With the name that a query uses."""
    page = (Path(__file__).parents[3] / "docs" / "METRICS.md").read_text()
    names = {sample.name for family in collector(broker).collect() for sample in family.samples}
    assert len(names) == 10
    assert sorted(name for name in names if f"`{name}`" not in page) == []
