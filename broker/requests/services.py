"""What the rooms of a running broker offer to handlers and to each other; made once, by `server.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
    from ottla.broker.security.security import Security
    from ottla.broker.storage.maintenance.group_commit import GroupCommit


@dataclass(slots=True, eq=False)
class Services:
    """The one object that handlers reach the broker through."""

    # Swapped whole when a dynamic option changes.
    config: BrokerConfig
    # This broker's partitions: appending and reading.
    partitions: Partitions
    # Forces records to disk, for topics that want that before they are acknowledged.
    group_commit: GroupCommit
    # Replicas on their way to another log directory.
    log_dir_moves: LogDirMoves
    # What the controller told about the cluster: topics, leaders, live brokers.
    metadata: MetadataCache
    # ZooKeeper-backed operations: topics, configs, producer ids, the controller.
    cluster: ClusterRegistry
    # This broker's candidacy for the controller's office, and its terms.
    controller: Controller
    # What clients have told about the partitions that they fetch.
    fetch_sessions: FetchSessions
    # Whom this broker believes to be controller.
    controller_gate: ControllerGate
    # Operations by topic name: they wait until the metadata shows what was done to their topics.
    delayed_topics: Purgatory
    # The groups that this broker coordinates, and what they do with their offsets.
    groups: GroupCoordinator
    group_offsets: GroupOffsets
    # Those of the new protocol.
    consumer_groups: ConsumerGroups
    # Who may do what, and how much of it.
    security: Security
    quotas: ClientQuotas
    clock: Callable[[], int]
