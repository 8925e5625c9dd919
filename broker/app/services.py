"""`Services`: everything that a broker is made of, except for what faces its clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ottla.broker.cluster.cluster_registry import ClusterRegistry
from ottla.broker.cluster.controller_gate import ControllerGate
from ottla.broker.cluster.metadata import MetadataCache
from ottla.broker.common.purgatory import Purgatory
from ottla.broker.config import BrokerConfig
from ottla.broker.controller.controller import Controller
from ottla.broker.groups.consumer.groups import ConsumerGroups
from ottla.broker.groups.coordinator import GroupCoordinator
from ottla.broker.groups.offsets.group_offsets import GroupOffsets
from ottla.broker.quotas.client_quotas import ClientQuotas
from ottla.broker.replication.leader.fetch_sessions import FetchSessions
from ottla.broker.replication.log_dir_moves import LogDirMoves
from ottla.broker.replication.partitions import Partitions
from ottla.broker.requests.services import (
    AdminServices,
    ControlPlaneServices,
    DataServices,
    GroupServices,
    RequestServices,
    SecurityServices,
    TopicServices,
)
from ottla.broker.security.security import Security
from ottla.broker.storage.maintenance.group_commit import GroupCommit


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Services:
    """The parts of one broker. Only `broker/app` sees all of them."""

    config: Callable[[], BrokerConfig]
    partitions: Partitions
    group_commit: GroupCommit
    log_dir_moves: LogDirMoves
    metadata: MetadataCache
    cluster: ClusterRegistry
    controller: Controller
    fetch_sessions: FetchSessions
    controller_gate: ControllerGate
    delayed_topics: Purgatory
    groups: GroupCoordinator
    group_offsets: GroupOffsets
    consumer_groups: ConsumerGroups
    security: Security
    quotas: ClientQuotas
    clock: Callable[[], int]

    def for_handlers(self) -> Mapping[type[RequestServices], RequestServices]:
        """Return what the handlers of each folder need, by its class."""
        common = (self.config, self.security, self.quotas)
        folders: list[RequestServices] = [
            DataServices(
                *common,
                partitions=self.partitions,
                metadata=self.metadata,
                cluster=self.cluster,
                fetch_sessions=self.fetch_sessions,
                clock=self.clock,
            ),
            GroupServices(
                *common,
                groups=self.groups,
                consumer_groups=self.consumer_groups,
                group_offsets=self.group_offsets,
                metadata=self.metadata,
                cluster=self.cluster,
                delayed_topics=self.delayed_topics,
                clock=self.clock,
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
