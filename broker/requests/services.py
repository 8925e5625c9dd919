"""What handlers may use of the broker: a class for each folder of `broker/handlers/`.

`broker/app` makes one object of each class. The handler table names the class of each API, and dispatch puts the object
into the request.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

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
from ottla.broker.transactions.coordinator import TransactionCoordinator
from ottla.broker.transactions.marker_writer import MarkerWriter
from ottla.broker.transactions.verifier import Verifier


class RequestServices(Struct, frozen=True, eq=False):
    """What every request needs: the options, who may do what, and how much of it."""

    # Returns the broker's options as they are now.
    config: Callable[[], BrokerConfig]
    security: Security
    quotas: ClientQuotas


class DataServices(RequestServices, frozen=True, eq=False):
    """For `handlers/data`."""

    # This broker's partitions: appending and reading.
    partitions: Partitions
    # What the controller told about the cluster: topics, leaders, live brokers.
    metadata: MetadataCache
    # Asks whether partitions are part of transactions.
    verifier: Verifier
    # What clients have told about the partitions that they fetch.
    fetch_sessions: FetchSessions
    # The time in milliseconds since 1970.
    clock: Callable[[], int]


class GroupServices(RequestServices, frozen=True, eq=False):
    """For `handlers/groups`."""

    # The groups that this broker coordinates.
    groups: GroupCoordinator
    # Those of the new protocol.
    consumer_groups: ConsumerGroups
    # What groups do with their offsets.
    group_offsets: GroupOffsets
    # Asks whether the offsets of a group are part of a transaction.
    verifier: Verifier
    metadata: MetadataCache
    # The transactional ids that this broker coordinates.
    transactions: TransactionCoordinator
    # Creates the internal topics where they are missing.
    cluster: ClusterRegistry
    # Operations by topic name: they wait until the metadata shows what was done to their topics.
    delayed_topics: Purgatory
    clock: Callable[[], int]


class TransactionServices(RequestServices, frozen=True, eq=False):
    """For `handlers/transactions`."""

    # The transactional ids that this broker coordinates.
    transactions: TransactionCoordinator
    # Writes the markers of all coordinators to this broker's partitions.
    marker_writer: MarkerWriter
    metadata: MetadataCache
    # Producer ids come from ZooKeeper.
    cluster: ClusterRegistry
    clock: Callable[[], int]


class TopicServices(RequestServices, frozen=True, eq=False):
    """For `handlers/topics`."""

    cluster: ClusterRegistry
    # This broker's candidacy for the controller's office, and its terms.
    controller: Controller
    metadata: MetadataCache
    delayed_topics: Purgatory


class AdminServices(RequestServices, frozen=True, eq=False):
    """For `handlers/admin`."""

    cluster: ClusterRegistry
    metadata: MetadataCache
    partitions: Partitions
    # Replicas on their way to another log directory.
    log_dir_moves: LogDirMoves


class SecurityServices(RequestServices, frozen=True, eq=False):
    """For `handlers/security`."""

    cluster: ClusterRegistry


class ControlPlaneServices(RequestServices, frozen=True, eq=False):
    """For `handlers/controller`: what the controller tells this broker, and what brokers ask of the controller."""

    controller: Controller
    # Whom this broker believes to be controller.
    controller_gate: ControllerGate
    cluster: ClusterRegistry
    metadata: MetadataCache
    partitions: Partitions
    delayed_topics: Purgatory
    groups: GroupCoordinator
    group_offsets: GroupOffsets
