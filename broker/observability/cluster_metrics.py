"""Metrics of the cluster as one broker sees it: its replicas, what it follows, its session, and the controller's view.

The values are read from the other rooms when somebody asks, in one pass over the partitions. Metrics that Kafka has
keep Kafka's names. Numbers that only the controller knows are 0 on all other brokers, so a sum over the brokers is
right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ottla.broker.cluster.membership import Membership
from ottla.broker.cluster.metadata import MetadataCache
from ottla.broker.cluster.zookeeper import SessionState, ZooKeeper
from ottla.broker.controller.controller import Controller
from ottla.broker.replication.partitions import Partitions
from ottla.broker.storage.log_moves import lag_of


class ReplicaCounts(Struct):
    """The partitions of a broker by their state."""

    partitions: int = 0
    leaders: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    at_min_isr: int = 0
    reassigning: int = 0
    # Replicas whose logs cannot be used.
    offline: int = 0
    # Idempotent producers in the logs of this broker; a producer counts once for each partition that it wrote to.
    producer_ids: int = 0
    isr_shrinks: int = 0
    isr_expands: int = 0
    failed_isr_updates: int = 0


def replica_counts(partitions: Partitions) -> ReplicaCounts:
    """Count the partitions. Only the leader counts a partition as unhealthy, so each one counts once in the cluster."""
    broken = partitions.logs.broken
    counts = ReplicaCounts(offline=len(broken))
    for partition in partitions:
        name = partition.partition
        counts.offline += partitions.logs.find(name) is None and name not in broken
        counts.partitions += 1
        counts.producer_ids += len(partition.log.producers)
        counts.isr_shrinks += partition.isr_shrinks
        counts.isr_expands += partition.isr_expands
        counts.failed_isr_updates += partition.failed_isr_updates
        if not partition.is_leader:
            continue
        role = partition.role
        min_isr = min(partition.log.config.min_insync_replicas, len(role.replicas))
        counts.leaders += 1
        # A replica that is being added does not count as missing.
        counts.under_replicated += len(role.isr) < len(role.replicas) - len(role.adding)
        counts.under_min_isr += len(role.isr) < min_isr
        counts.at_min_isr += len(role.isr) == min_isr
        counts.reassigning += bool(role.adding or role.removing)
    return counts


class ClusterCollector(Collector):
    """Reads what one broker knows about its cluster."""

    def __init__(
        self,
        partitions: Partitions,
        controller: Controller,
        metadata: MetadataCache,
        zookeeper: ZooKeeper,
        membership: Membership,
    ) -> None:
        self._partitions = partitions
        self._controller = controller
        self._metadata = metadata
        self._zookeeper = zookeeper
        self._membership = membership

    def collect(self) -> Iterator[Metric]:
        """Return the current values."""
        yield from self._replica_metrics()
        yield from self._fetcher_metrics()
        yield from self._controller_metrics()
        yield from self._session_metrics()

    def _replica_metrics(self) -> Iterable[Metric]:
        counts = replica_counts(self._partitions)
        for name, help_text, value in (
            ("partitioncount", "Partitions here", counts.partitions),
            ("leadercount", "Partitions led here", counts.leaders),
            ("underreplicatedpartitions", "Partitions led here with replicas out of sync", counts.under_replicated),
            ("underminisrpartitioncount", "Partitions led here below min.insync.replicas", counts.under_min_isr),
            ("atminisrpartitioncount", "Partitions led here exactly at min.insync.replicas", counts.at_min_isr),
            ("reassigningpartitions", "Partitions led here that are being reassigned", counts.reassigning),
            ("offlinereplicacount", "Replicas here whose log cannot be used", counts.offline),
            ("produceridcount", "Producers that the partitions here remember", counts.producer_ids),
        ):
            yield GaugeMetricFamily(f"kafka_server_replicamanager_{name}", help_text, value)
        for name, help_text, value in (
            ("isrshrinks", "Times that a replica left the ISR", counts.isr_shrinks),
            ("isrexpands", "Times that a replica joined the ISR", counts.isr_expands),
            ("failedisrupdates", "ISR changes that the controller refused", counts.failed_isr_updates),
        ):
            yield CounterMetricFamily(f"kafka_server_replicamanager_{name}", help_text, value)

    def _fetcher_metrics(self) -> Iterable[Metric]:
        """The lags by leader, because rows for all partitions would be too many for a scrape."""
        fetchers = self._partitions.fetchers
        largest: dict[int, int] = {}
        total: dict[int, int] = {}
        for name, lag in ({} if fetchers is None else fetchers.lags()).items():
            partition = self._partitions.find(name)
            if partition is not None:
                leader = partition.role.leader_id
                largest[leader] = max(lag, largest.get(leader, 0))
                total[leader] = total.get(leader, 0) + lag
        max_lag = GaugeMetricFamily(
            "kafka_server_replicafetchermanager_maxlag", "Largest lag of a follower here", labels=["clientId"]
        )
        max_lag.add_metric(["Replica"], max(largest.values(), default=0))
        yield max_lag
        logs = self._partitions.logs
        move_lag = GaugeMetricFamily(
            "kafka_server_replicaalterlogdirsmanager_maxlag",
            "Lag of a replica that is being moved to another log directory",
            labels=["clientId"],
        )
        lags_of_moves = [lag_of(logs, future) or 0 for future, _ in logs.futures()]
        move_lag.add_metric(["ReplicaAlterLogDirs"], max(lags_of_moves, default=0))
        yield move_lag
        failing = GaugeMetricFamily(
            "kafka_server_replicafetchermanager_failedpartitionscount",
            "Partitions whose last fetch failed",
            labels=["clientId"],
        )
        failing.add_metric(["Replica"], 0 if fetchers is None else fetchers.failing())
        yield failing
        for metric, help_text, lags in (
            ("ottla_fetcher_lag_max", "Largest lag of a partition that follows this leader", largest),
            ("ottla_fetcher_lag_sum", "Sum of the lags of the partitions that follow this leader", total),
        ):
            family = GaugeMetricFamily(metric, help_text, labels=["leader"])
            for leader, lag in sorted(lags.items()):
                family.add_metric([str(leader)], lag)
            yield family

    def _controller_metrics(self) -> Iterable[Metric]:
        stats = self._controller.stats
        for name, help_text, value in (
            ("activecontrollercount", "1 if this broker is the controller", int(stats.active)),
            ("activebrokercount", "Live brokers", stats.live_brokers),
            ("globaltopiccount", "Topics", stats.topics),
            ("globalpartitioncount", "Partitions", stats.partitions),
            ("offlinepartitionscount", "Partitions without a leader", stats.offline_partitions),
            (
                "preferredreplicaimbalancecount",
                "Partitions whose leader is not the preferred replica",
                stats.preferred_imbalance,
            ),
            ("topicstodeletecount", "Topics that are being deleted", stats.topics_to_delete),
            ("replicastodeletecount", "Replicas of these topics that still exist", stats.replicas_to_delete),
            ("topicsineligibletodeletecount", "Topics whose deletion has to wait", stats.topics_ineligible),
            ("replicasineligibletodeletecount", "Replicas that cannot be deleted now", stats.replicas_ineligible),
        ):
            yield GaugeMetricFamily(f"kafka_controller_kafkacontroller_{name}", help_text, value)
        yield CounterMetricFamily(
            "kafka_controller_controllerstats_uncleanleaderelections",
            "Leaders elected from outside the ISR",
            stats.unclean_elections,
        )
        yield GaugeMetricFamily(
            "kafka_controller_controllerchannelmanager_totalqueuesize",
            "Batches of messages that brokers have not answered",
            self._controller.queue_size,
        )
        yield CounterMetricFamily("ottla_controller_elections", "Rounds of leader elections", stats.elections)
        yield CounterMetricFamily(
            "ottla_controller_election_seconds", "Time spent on elections", stats.election_seconds
        )
        yield GaugeMetricFamily(
            "ottla_controller_last_election_seconds", "Time of the last round", stats.last_election_seconds
        )
        epoch = max(stats.epoch, self._metadata.snapshot.controller_epoch)
        yield GaugeMetricFamily(
            "ottla_controller_epoch", "Epoch of the latest controller that this broker knows", epoch
        )

    def _session_metrics(self) -> Iterable[Metric]:
        state = GaugeMetricFamily("ottla_zookeeper_session", "1 for the current state", labels=["state"])
        for each in SessionState:
            state.add_metric([each.value], int(self._zookeeper.state is each))
        yield state
        entered = self._zookeeper.entered
        listener = "kafka_server_sessionexpirelistener"
        yield CounterMetricFamily(
            f"{listener}_zookeeperdisconnects", "Connections lost", entered[SessionState.SUSPENDED]
        )
        yield CounterMetricFamily(
            f"{listener}_zookeeperexpires", "Sessions that ZooKeeper ended", entered[SessionState.EXPIRED]
        )
        yield CounterMetricFamily(
            "ottla_zookeeper_doubts", "Times that the session may have expired", entered[SessionState.IN_DOUBT]
        )
        yield GaugeMetricFamily(
            "ottla_broker_epoch", "Epoch of the registration; -1 if none", self._membership.broker_epoch
        )
