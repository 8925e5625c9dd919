"""Metrics of background work: compaction, retention, flushes, and the cache of fetch sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from ottla.broker.common.timings import Timing
from ottla.broker.observability.broker_metrics import QUANTILES
from ottla.broker.replication.leader.fetch_sessions import FetchSessions
from ottla.broker.storage.compaction.cleaners import Cleaners
from ottla.broker.storage.maintenance.group_commit import GroupCommit
from ottla.broker.storage.maintenance.stuck_segments import StuckSegment


class StorageCollector(Collector):
    """Reads the cleaners, retention, the group commit and the fetch sessions of one broker."""

    def __init__(
        self,
        cleaners: Cleaners,
        group_commit: GroupCommit,
        fetch_sessions: FetchSessions,
        stuck: Callable[[], Sequence[StuckSegment]] = tuple,
    ) -> None:
        self._cleaners = cleaners
        self._group_commit = group_commit
        self._fetch_sessions = fetch_sessions
        self._stuck = stuck

    def describe(self) -> Iterator[Metric]:
        """Return nothing: naming the metrics in advance would mean collecting them."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Return the current values."""
        yield from self._compaction()
        yield self._stuck_segments()
        yield self._flushes()
        yield from self._sessions()

    def _compaction(self) -> Iterator[Metric]:
        state, manager = self._cleaners.state(), "kafka_log_logcleanermanager"
        yield GaugeMetricFamily(
            f"{manager}_time_since_last_run_ms", "Time since the cleaners last looked for work", state.ms_since_last_run
        )
        yield GaugeMetricFamily(
            f"{manager}_max_dirty_percent", "Dirty share of the dirtiest log", int(100 * state.max_dirty_ratio)
        )
        uncleanable = GaugeMetricFamily(
            f"{manager}_uncleanable_partitions_count",
            "Logs that are not compacted any more because a compaction failed",
            labels=["logDirectory"],
        )
        for log_dir, count in state.uncleanable.items():
            uncleanable.add_metric([str(log_dir.path)], count)
        yield uncleanable
        yield GaugeMetricFamily(
            "kafka_log_logcleaner_deadthreadcount", "Cleaner threads that have died", state.dead_threads
        )

    def _stuck_segments(self) -> Metric:
        family = GaugeMetricFamily(
            "ottla_log_stuck_segment_bytes",
            "Bytes that retention or compaction cannot remove, by the oldest segment of a log and what holds it back",
            labels=["topic", "partition", "segment", "holder"],
        )
        for each in self._stuck():
            labels = [each.partition.topic, str(each.partition.partition), each.path.name, each.holder.value]
            family.add_metric(labels, each.held_bytes)
        return family

    def _flushes(self) -> Metric:
        name, times = "kafka_log_logflushstats_logflushrateandtimems", Timing()
        for worker in self._group_commit.workers.values():
            times.include(worker.flush_times)
        count = sum(times.counts)
        family = SummaryMetricFamily(name, "Milliseconds to flush a log to disk")
        for quantile in QUANTILES:
            family.add_sample(name, {"quantile": str(quantile)}, times.quantile(quantile, count) * 1000)
        family.add_metric([], count_value=count, sum_value=times.total_seconds * 1000)
        return family

    def _sessions(self) -> Iterator[Metric]:
        sessions, cache = self._fetch_sessions, "kafka_server_fetchsessioncache"
        yield GaugeMetricFamily(f"{cache}_numincrementalfetchsessions", "Fetch sessions", len(sessions))
        yield GaugeMetricFamily(
            f"{cache}_numincrementalfetchpartitionscached", "Their partitions", sessions.partition_count
        )
        evictions = CounterMetricFamily(
            f"{cache}_incrementalfetchsessionevictions", "Fetch sessions evicted from the cache"
        )
        evictions.add_metric([], sessions.evictions)
        yield evictions
