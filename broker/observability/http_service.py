"""What the broker's HTTP port serves: its metrics, its health, and the groups that it coordinates."""

from __future__ import annotations

import socket
from typing import Any

from ottla.broker.groups.lag_lookups import LagLookups
from ottla.broker.observability.audit_metrics import AuditCollector
from ottla.broker.observability.broker_metrics import BrokerCollector, registry_of
from ottla.broker.observability.cluster_metrics import ClusterCollector, replica_counts
from ottla.broker.observability.event_ring import BROKER_EVENTS
from ottla.broker.observability.group_metrics import GroupCollector
from ottla.broker.observability.group_pages import GroupPages
from ottla.broker.observability.http_access import HttpAccess
from ottla.broker.observability.http_port import Observed
from ottla.broker.observability.http_server import HttpServer, Page
from ottla.broker.observability.inside.broker_page import BrokerPage
from ottla.broker.observability.inside.clients_page import ClientsPage
from ottla.broker.observability.inside.disks_page import DisksPage
from ottla.broker.observability.inside.events_page import EventsPage
from ottla.broker.observability.inside.pages import InsidePages
from ottla.broker.observability.inside.quotas_page import QuotasPage
from ottla.broker.observability.inside.requests_page import RequestsPage
from ottla.broker.observability.inside.segments_page import SegmentsPage
from ottla.broker.observability.load_metrics import LoadCollector
from ottla.broker.observability.partition_metrics import PartitionCollector
from ottla.broker.observability.quota_metrics import QuotaCollector
from ottla.broker.observability.storage_metrics import StorageCollector
from ottla.broker.observability.transaction_metrics import TransactionCollector


class HttpService:
    """Serves what is observed of one broker."""

    def __init__(self, listening: socket.socket, host: str, observed: Observed) -> None:
        """Take an open port, which `close` closes; `host` is what the options say of its address."""
        self._observed = observed
        self._lag_lookups = LagLookups(observed.partitions, observed.metadata, observed.leader_lookups)
        partitions, metadata, controller = observed.partitions, observed.metadata, observed.controller

        def shows_partitions() -> bool:
            return bool(observed.config().ottla_metrics_partitions)

        registry = registry_of(
            BrokerCollector(observed.network, partitions, observed.requests, shows_partitions),
            ClusterCollector(partitions, controller, metadata, observed.zookeeper, observed.membership),
            GroupCollector(observed.groups, self._lag_lookups),
            TransactionCollector(
                observed.transactions,
                observed.markers,
                observed.verifier,
                partitions,
                observed.clock,
                lambda: observed.config().transaction_max_timeout_ms,
            ),
            PartitionCollector(partitions, metadata, lambda: controller.is_active, shows_partitions),
            LoadCollector(observed.network, observed.requests),
            QuotaCollector(observed.quotas),
            AuditCollector(observed.audit_topic),
            StorageCollector(
                observed.maintenance.cleaners,
                observed.group_commit,
                observed.fetch_sessions,
                lambda: observed.maintenance.stuck,
            ),
        )
        inside = InsidePages(
            {
                "broker": BrokerPage(
                    observed.membership.broker_id, observed.config, observed.network, partitions, observed.requests
                ),
                "clients": ClientsPage(observed.network),
                "requests": RequestsPage(observed.requests, observed.quotas),
                "quotas": QuotasPage(observed.quotas),
                "segments": SegmentsPage(partitions),
                "disks": DisksPage(partitions, lambda: observed.maintenance.stuck),
                "events": EventsPage(BROKER_EVENTS, observed.groups),
            }
        )
        pages: dict[str, Page] = {"groups": GroupPages(observed.groups, self._lag_lookups), "inside": inside}
        access = HttpAccess.of(observed.config(), host)
        self._http = HttpServer(listening, registry, self._health, pages, access)

    def start(self) -> None:
        """Serve."""
        self._lag_lookups.start()
        self._http.start()

    def close(self) -> None:
        """Give the port back."""
        self._http.stop()
        self._lag_lookups.stop()

    def _health(self) -> dict[str, Any]:
        """Ready: a member of the cluster, serving, with a log directory that works."""
        observed = self._observed
        is_member = observed.membership.broker_epoch >= 0
        directories_online = sum(log_dir.is_online for log_dir in observed.partitions.logs.dirs)
        replicas = replica_counts(observed.partitions)
        return {
            "ready": observed.is_ready() and is_member and directories_online > 0,
            "broker_id": observed.membership.broker_id,
            "cluster_id": observed.cluster_id,
            "is_member": is_member,
            "zookeeper": observed.zookeeper.state.value,
            "log_directories_online": directories_online,
            "is_controller": observed.controller.is_active,
            "partitions": replicas.partitions,
            "leaders": replicas.leaders,
            "under_replicated": replicas.under_replicated,
        }
