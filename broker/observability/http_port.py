"""The broker's HTTP port, which is opened when the broker starts, and served from its first connection on.

What serves it is a tenth of a broker's imports and of its memory, and nobody asks most of the brokers that tests and
developers start. So it is imported when there is somebody to answer.
"""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import structlog
from msgspec import Struct

from ottla.broker.cluster.membership import Membership
from ottla.broker.cluster.metadata import MetadataCache
from ottla.broker.cluster.zookeeper import ZooKeeper
from ottla.broker.common.timings import RequestMetrics
from ottla.broker.config import BrokerConfig
from ottla.broker.config.addresses import Address
from ottla.broker.controller.controller import Controller
from ottla.broker.groups.coordinator import GroupCoordinator
from ottla.broker.groups.lag_lookups import LeaderLookups
from ottla.broker.network.network import Network
from ottla.broker.quotas.client_quotas import ClientQuotas
from ottla.broker.replication.leader.fetch_sessions import FetchSessions
from ottla.broker.replication.partitions import Partitions
from ottla.broker.security.audit.audit_topic import AuditTopic
from ottla.broker.storage.maintenance.group_commit import GroupCommit
from ottla.broker.storage.maintenance.maintenance import Maintenance
from ottla.broker.transactions.coordinator import TransactionCoordinator
from ottla.broker.transactions.markers import MarkerSender
from ottla.broker.transactions.verifier import Verifier

if TYPE_CHECKING:
    from ottla.broker.observability.http_service import HttpService

log = structlog.get_logger(__name__)

# How soon a stop is noticed.
_POLL_MS: Final = 100
# After a failure to begin, for example because no descriptor is left, the port is tried again so soon.
_RETRY_SECONDS: Final = 1.0
# Connections that the kernel accepts before we do.
_BACKLOG: Final = 128


class Observed(Struct, frozen=True, eq=False, kw_only=True):
    """What metrics, health and pages are read from."""

    config: Callable[[], BrokerConfig]
    # The time in milliseconds since 1970.
    clock: Callable[[], int]
    cluster_id: str
    zookeeper: ZooKeeper
    membership: Membership
    metadata: MetadataCache
    controller: Controller
    partitions: Partitions
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    markers: MarkerSender
    verifier: Verifier
    # Asks other brokers about the partitions that they lead.
    leader_lookups: LeaderLookups
    quotas: ClientQuotas
    audit_topic: AuditTopic | None
    fetch_sessions: FetchSessions
    group_commit: GroupCommit
    maintenance: Maintenance
    network: Network
    requests: RequestMetrics
    # Whether the broker has started, and is not about to stop.
    is_ready: Callable[[], bool]


class HttpPort:
    """The open port, and then what serves it."""

    def __init__(self, address: Address, observed: Observed) -> None:
        self._address = address
        self._observed = observed
        self._listening: socket.socket | None = None
        self._closing = threading.Event()
        # Waits for the first connection. Only this thread sets the service, and `close` waits for it.
        self._thread = threading.Thread(target=self._await_connection, name="http-port", daemon=True)
        self._service: HttpService | None = None

    def start(self) -> None:
        """Open the port. Raises OSError where it is taken."""
        self._listening = socket.create_server((self._address.host, self._address.port), backlog=_BACKLOG)
        self._thread.start()

    def close(self) -> None:
        """Give the port back."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._service is not None:
            self._service.close()
        elif self._listening is not None:
            self._listening.close()
        self._observed.leader_lookups.close()

    def _await_connection(self) -> None:
        assert self._listening is not None
        poll = select.poll()
        poll.register(self._listening, select.POLLIN)
        while not self._closing.is_set():
            if not poll.poll(_POLL_MS):
                continue
            try:
                self._serve(self._listening)
            except Exception:  # an open port must not stay without an answer
                log.exception("http_port_not_served")
                self._closing.wait(_RETRY_SECONDS)
            else:
                return

    def _serve(self, listening: socket.socket) -> None:
        from ottla.broker.observability.http_service import HttpService

        service = HttpService(listening, self._address.host, self._observed)
        service.start()
        self._service = service
