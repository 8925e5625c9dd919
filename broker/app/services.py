"""`Services`: everything that a broker is made of, except for what faces its clients."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from ottla.broker.app.current_configs import CurrentConfigs
from ottla.broker.cluster.cluster_registry import ClusterRegistry
from ottla.broker.cluster.controller_gate import ControllerGate
from ottla.broker.cluster.membership import Membership
from ottla.broker.cluster.metadata import MetadataCache
from ottla.broker.cluster.zookeeper import ZooKeeper
from ottla.broker.common.clocks import Clocks
from ottla.broker.common.purgatory import Purgatory
from ottla.broker.common.timings import RequestMetrics
from ottla.broker.controller.controller import Controller
from ottla.broker.groups.consumer.groups import ConsumerGroups
from ottla.broker.groups.coordinator import GroupCoordinator
from ottla.broker.groups.offsets.group_offsets import GroupOffsets
from ottla.broker.quotas.client_quotas import ClientQuotas
from ottla.broker.replication.leader.fetch_sessions import FetchSessions
from ottla.broker.replication.log_dir_moves import LogDirMoves
from ottla.broker.replication.partitions import Partitions
from ottla.broker.replication.throttle import Throttles
from ottla.broker.requests.services import (
    AdminServices,
    ControlPlaneServices,
    DataServices,
    GroupServices,
    RequestServices,
    SecurityServices,
    TopicServices,
    TransactionServices,
)
from ottla.broker.security.audit.audit_topic import AuditTopic
from ottla.broker.security.security import Security
from ottla.broker.storage.logs import Logs
from ottla.broker.storage.maintenance.group_commit import GroupCommit
from ottla.broker.storage.maintenance.maintenance import Maintenance
from ottla.broker.transactions.coordinator import TransactionCoordinator
from ottla.broker.transactions.marker_writer import MarkerWriter
from ottla.broker.transactions.markers import MarkerSender
from ottla.broker.transactions.verifier import Verifier


class Services(Struct, frozen=True, eq=False, kw_only=True):
    """The parts of one broker. Only `broker/app` sees all of them."""

    clocks: Clocks
    configs: CurrentConfigs
    # The cluster, as ZooKeeper and the controller know it, and this broker's place in it
    zookeeper: ZooKeeper
    membership: Membership
    metadata: MetadataCache
    cluster: ClusterRegistry
    controller: Controller
    controller_gate: ControllerGate
    # Clients
    security: Security
    # Only if the audit stream goes to a topic.
    audit_topic: AuditTopic | None
    quotas: ClientQuotas
    requests: RequestMetrics
    delayed_topics: Purgatory
    # Records
    logs: Logs
    group_commit: GroupCommit
    maintenance: Maintenance
    throttles: Throttles
    partitions: Partitions
    log_dir_moves: LogDirMoves
    fetch_sessions: FetchSessions
    # Groups
    groups: GroupCoordinator
    group_offsets: GroupOffsets
    consumer_groups: ConsumerGroups
    # Transactions
    transactions: TransactionCoordinator
    markers: MarkerSender
    marker_writer: MarkerWriter
    verifier: Verifier

    def for_handlers(self) -> Mapping[type[RequestServices], RequestServices]:
        """Return what the handlers of each folder need, by its class."""
        common = (self.configs.broker, self.security, self.quotas)
        folders: list[RequestServices] = [
            DataServices(
                *common,
                partitions=self.partitions,
                metadata=self.metadata,
                verifier=self.verifier,
                fetch_sessions=self.fetch_sessions,
                clock=self.clocks.wall_ms,
            ),
            GroupServices(
                *common,
                groups=self.groups,
                consumer_groups=self.consumer_groups,
                group_offsets=self.group_offsets,
                verifier=self.verifier,
                metadata=self.metadata,
                transactions=self.transactions,
                cluster=self.cluster,
                delayed_topics=self.delayed_topics,
                clock=self.clocks.wall_ms,
            ),
            TransactionServices(
                *common,
                transactions=self.transactions,
                marker_writer=self.marker_writer,
                metadata=self.metadata,
                cluster=self.cluster,
                clock=self.clocks.wall_ms,
            ),
            TopicServices(
                *common,
                cluster=self.cluster,
                controller=self.controller,
                metadata=self.metadata,
                delayed_topics=self.delayed_topics,
            ),
            AdminServices(
                *common,
                cluster=self.cluster,
                metadata=self.metadata,
                partitions=self.partitions,
                log_dir_moves=self.log_dir_moves,
            ),
            SecurityServices(*common, cluster=self.cluster),
            ControlPlaneServices(
                *common,
                controller=self.controller,
                controller_gate=self.controller_gate,
                cluster=self.cluster,
                metadata=self.metadata,
                partitions=self.partitions,
                delayed_topics=self.delayed_topics,
                groups=self.groups,
                group_offsets=self.group_offsets,
            ),
        ]
        return {type(each): each for each in folders}
