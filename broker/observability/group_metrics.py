"""The lag of groups, under the names of kafka_exporter, for the groups that this broker coordinates. Times are ours.

Every group has one coordinator, so a sum over the brokers is right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ottla.broker.groups.coordinated_group import CoordinatedGroup
from ottla.broker.groups.coordinator import GroupCoordinator
from ottla.broker.groups.group_lag import lags_of
from ottla.broker.groups.lag_lookups import LagLookups
from ottla.broker.observability.growth_rate import GrowthRate


class GroupCollector(Collector):
    """Reads the groups of one broker."""

    def __init__(self, groups: GroupCoordinator, lookups: LagLookups) -> None:
        self._groups = groups
        self._lookups = lookups
        counts = groups.counts
        self._counters: dict[str, Callable[[], int]] = {
            "offset_commit": lambda: counts.offset_commits,
            "offset_expiration": lambda: counts.offset_expirations,
            "offset_deletion": lambda: counts.offset_deletions,
            "group_completed_rebalance": lambda: counts.completed_rebalances,
        }
        self._rates = {name: GrowthRate(count) for name, count in self._counters.items()}

    def describe(self) -> Iterator[Metric]:
        """Return nothing: naming the metrics in advance would mean collecting them."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Return the current values."""
        entries = list(self._groups)
        partition_labels = ["consumergroup", "topic", "partition"]
        offset = GaugeMetricFamily(
            "kafka_consumergroup_current_offset", "Offset that a group has committed", labels=partition_labels
        )
        lag = GaugeMetricFamily(
            "kafka_consumergroup_lag", "Records that a group has not committed yet", labels=partition_labels
        )
        age = GaugeMetricFamily(
            "ottla_consumergroup_lag_seconds", "Age of the first record not committed", labels=partition_labels
        )
        stalled = GaugeMetricFamily(
            "ottla_consumergroup_stalled_seconds",
            "For how long a group has not moved although there is a record to read",
            labels=partition_labels,
        )
        sums = ["consumergroup", "topic"]
        offset_sum = GaugeMetricFamily(
            "kafka_consumergroup_current_offset_sum", "Committed offsets of a topic", labels=sums
        )
        lag_sum = GaugeMetricFamily("kafka_consumergroup_lag_sum", "Lag of a topic", labels=sums)
        members = GaugeMetricFamily("kafka_consumergroup_members", "Members of a group", labels=["consumergroup"])
        offsets_by_group = {entry.group_id: entry.offsets.shown() for entry in entries}
        lags = lags_of(offsets_by_group, self._lookups, self._groups.clock())
        for entry in entries:
            members.add_metric([entry.group_id], member_count(entry))
            behind = lags[entry.group_id]
            by_topic: Counter[str] = Counter()
            lag_by_topic: Counter[str] = Counter()
            for partition, each in offsets_by_group[entry.group_id].items():
                labels = [entry.group_id, partition.topic, str(partition.partition)]
                offset.add_metric(labels, each.offset)
                by_topic[partition.topic] += each.offset
                if partition in behind:
                    found = behind[partition]
                    lag.add_metric(labels, found.records)
                    lag_by_topic[partition.topic] += found.records
                    if found.age_ms is not None and found.stalled_ms is not None:
                        age.add_metric(labels, found.age_ms / 1000)
                        stalled.add_metric(labels, found.stalled_ms / 1000)
            for topic, total in by_topic.items():
                offset_sum.add_metric([entry.group_id, topic], total)
            for topic, total in lag_by_topic.items():
                lag_sum.add_metric([entry.group_id, topic], total)
        yield from (offset, offset_sum, lag, lag_sum, age, stalled, members)
        count = GaugeMetricFamily("kafka_coordinator_group_groupmetadatamanager_numgroups", "Groups coordinated here")
        count.add_metric([], len(entries))
        yield count
        offsets = GaugeMetricFamily("kafka_coordinator_group_groupmetadatamanager_numoffsets", "Offsets kept here")
        offsets.add_metric([], sum(len(entry.offsets) for entry in entries))
        yield offsets
        yield from self._rates_and_counters()

    def _rates_and_counters(self) -> Iterator[Metric]:
        """Kafka publishes each as a rate. The counters are for users who choose the window themselves."""
        for name, count in self._counters.items():
            name_of_all = f"kafka_server_group_coordinator_metrics_{name}"
            counter = CounterMetricFamily(name_of_all, f"{name.replace('_', ' ').capitalize()}s so far")
            counter.add_metric([], count())
            yield counter
            rate = GaugeMetricFamily(f"{name_of_all}_rate", "The same as a rate per second")
            rate.add_metric([], self._rates[name]())
            yield rate


def member_count(entry: CoordinatedGroup) -> int:
    """Return the number of members of a group of any kind."""
    return len(getattr(entry.group, "members", ()))
