"""What a running broker shows over HTTP: its metrics, whether it is well, and its groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.broker.groups.end_offsets import EndOffsets, LeaderEnds
from ottla.broker.observability.cluster_metrics import ClusterCollector, replica_counts
from ottla.broker.observability.group_metrics import GroupCollector
from ottla.broker.observability.group_pages import GroupPages
from ottla.broker.observability.http import HttpServer
from ottla.broker.observability.http_access import HttpAccess
from ottla.broker.observability.load_metrics import LoadCollector
from ottla.broker.observability.metrics import BrokerCollector, registry_of
from ottla.broker.observability.partition_metrics import PartitionCollector
from ottla.broker.observability.quota_metrics import QuotaCollector
from ottla.broker.observability.storage_metrics import StorageCollector

if TYPE_CHECKING:
    from ottla.broker.cluster.membership import Membership
    from ottla.broker.cluster.zookeeper import ZooKeeper
    from ottla.broker.common.timings import RequestMetrics
    from ottla.broker.config.addresses import Address
    from ottla.broker.network.network import Network
    from ottla.broker.requests.services import Services
    from ottla.broker.storage.compaction.cleaners import Cleaners


class Observation:
    """The HTTP port and what it reads from."""

    def __init__(
        self,
        address: Address,
        services: Services,
        network: Network,
        metrics: RequestMetrics,
        zookeeper: ZooKeeper,
        membership: Membership,
        leader_ends: LeaderEnds,
        cleaners: Cleaners,
        is_ready: Callable[[], bool],
    ) -> None:
        self._services = services
        self._zookeeper = zookeeper
        self._membership = membership
        self._is_ready = is_ready
        self._leader_ends = leader_ends
        self._end_offsets = EndOffsets(services.partitions, services.metadata, leader_ends)

        def shows_partitions() -> bool:
            return bool(services.config.ottla_metrics_partitions)

        registry = registry_of(
            BrokerCollector(network, services.partitions, metrics, shows_partitions),
            ClusterCollector(services.partitions, services.controller, services.metadata, zookeeper, membership),
            GroupCollector(services.groups, self._end_offsets),
            PartitionCollector(
                services.partitions,
                services.metadata,
                lambda: services.controller.is_active,
                shows_partitions,
            ),
            LoadCollector(network, metrics),
            QuotaCollector(services.quotas),
            StorageCollector(cleaners, services.group_commit, services.fetch_sessions),
        )
        pages = {"groups": GroupPages(services.groups, self._end_offsets)}
        self._http = HttpServer(
            address.host,
            address.port,
            registry,
            self._health,
            pages,
            HttpAccess.of(services.config, address.host),
        )

    def start(self) -> None:
        """Serve."""
        self._end_offsets.start()
        self._http.start()

    def close(self) -> None:
        """Give the port back."""
        self._http.stop()
        self._end_offsets.stop()
        self._leader_ends.close()

    def _health(self) -> dict[str, Any]:
        """Ready: a member of the cluster, serving, with a log directory that works."""
        services, membership = self._services, self._membership
        is_member = membership.broker_epoch >= 0
        directories_online = sum(log_dir.is_online for log_dir in services.partitions.logs.dirs)
        replicas = replica_counts(services.partitions)
        return {
            "ready": self._is_ready() and is_member and directories_online > 0,
            "broker_id": membership.broker_id,
            "cluster_id": services.cluster.id,
            "is_member": is_member,
            "zookeeper": self._zookeeper.state.value,
            "log_directories_online": directories_online,
            "is_controller": services.controller.is_active,
            "partitions": replicas.partitions,
            "leaders": replicas.leaders,
            "under_replicated": replicas.under_replicated,
        }
