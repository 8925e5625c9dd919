"""Metrics of single partitions, under the names of Kafka's JMX exporter and of kafka_exporter.

Only the leader shows a partition, and only the controller shows topics and brokers, so sums over the brokers are right.
With very many partitions a scrape gets long; `ottla.metrics.partitions` turns the rows off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ottla.broker.cluster.metadata import MetadataCache
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.partitions import Partitions

_LABELS = ["topic", "partition"]


class PartitionCollector(Collector):
    """Reads the partitions that one broker leads."""

    def __init__(
        self,
        partitions: Partitions,
        metadata: MetadataCache,
        is_controller: Callable[[], bool],
        shows_partitions: Callable[[], bool],
    ) -> None:
        self._partitions = partitions
        self._metadata = metadata
        self._is_controller = is_controller
        self._shows_partitions = shows_partitions

    def describe(self) -> Iterator[Metric]:
        """Return nothing: naming the metrics in advance would mean collecting them."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Return the current values."""
        # Dashboards for kafka_exporter use this metric to find the exporters.
        build = GaugeMetricFamily("kafka_exporter_build_info", "Always 1", labels=["version"])
        build.add_metric(["ottla"], 1)
        yield build
        yield from self._topics()
        if self._shows_partitions():
            yield from self._led()

    def _topics(self) -> Iterator[Metric]:
        snapshot, is_controller = self._metadata.snapshot, self._is_controller()
        brokers = GaugeMetricFamily("kafka_brokers", "Live brokers; 0 on all but the controller")
        brokers.add_metric([], len(snapshot.brokers) if is_controller else 0)
        yield brokers
        counts = GaugeMetricFamily("kafka_topic_partitions", "Partitions of a topic", labels=["topic"])
        if is_controller:
            for topic in snapshot.topics.values():
                counts.add_metric([topic.name], len(topic.partitions))
        yield counts

    def _led(self) -> Iterator[Metric]:
        families = {
            name: GaugeMetricFamily(name, help_text, labels=_LABELS)
            for name, help_text in (
                ("kafka_cluster_partition_replicascount", "Replicas of a partition"),
                ("kafka_cluster_partition_insyncreplicascount", "Replicas in sync"),
                ("kafka_cluster_partition_underreplicated", "Whether a replica is not in sync"),
                ("kafka_cluster_partition_underminisr", "Whether the ISR is below min.insync.replicas"),
                ("kafka_cluster_partition_atminisr", "Whether the ISR is exactly at min.insync.replicas"),
                ("kafka_cluster_partition_laststableoffsetlag", "Records that read_committed consumers cannot see yet"),
                ("kafka_topic_partition_current_offset", "High watermark"),
                ("kafka_topic_partition_oldest_offset", "First offset"),
                ("kafka_topic_partition_replicas", "Replicas of a partition"),
                ("kafka_topic_partition_in_sync_replica", "Replicas in sync"),
                ("kafka_topic_partition_leader", "Id of the leader"),
                ("kafka_topic_partition_leader_is_preferred", "Whether the preferred replica leads"),
                ("kafka_topic_partition_under_replicated_partition", "Whether a replica is not in sync"),
            )
        }
        for partition in self._partitions:
            if partition.is_leader:
                labels = [partition.partition.topic, str(partition.partition.partition)]
                for name, value in _numbers(partition).items():
                    families[name].add_metric(labels, value)
        yield from families.values()


def _numbers(partition: Partition) -> dict[str, int]:
    role, high_watermark = partition.role, partition.log.high_watermark
    replicas, in_sync = len(role.replicas), len(role.isr)
    min_isr = min(partition.log.config.min_insync_replicas, replicas)
    # A replica that is being added does not count as missing.
    is_under_replicated = int(in_sync < replicas - len(role.adding))
    return {
        "kafka_cluster_partition_replicascount": replicas,
        "kafka_cluster_partition_insyncreplicascount": in_sync,
        "kafka_cluster_partition_underreplicated": is_under_replicated,
        "kafka_cluster_partition_underminisr": int(in_sync < min_isr),
        "kafka_cluster_partition_atminisr": int(in_sync == min_isr),
        # The stable offset is read after the high watermark, so it may be larger by then.
        "kafka_cluster_partition_laststableoffsetlag": max(high_watermark - partition.log.last_stable_offset, 0),
        "kafka_topic_partition_current_offset": high_watermark,
        "kafka_topic_partition_oldest_offset": partition.log.log_start_offset,
        "kafka_topic_partition_replicas": replicas,
        "kafka_topic_partition_in_sync_replica": in_sync,
        "kafka_topic_partition_leader": role.leader_id,
        "kafka_topic_partition_leader_is_preferred": int(bool(role.replicas) and role.replicas[0] == role.leader_id),
        "kafka_topic_partition_under_replicated_partition": is_under_replicated,
    }
