"""What a broker does when it loses replicas, or its place in the cluster."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from ottla.broker.cluster.cluster_registry import ClusterRegistry
from ottla.broker.cluster.membership import Membership
from ottla.broker.cluster.metadata import MetadataCache
from ottla.broker.replication.partitions import Partitions
from ottla.broker.storage.log_dir import LogDir
from ottla.protocol.errors import KafkaError
from ottla.protocol.identifiers import TopicPartition

log = structlog.get_logger(__name__)


def log_dir_lost(
    cluster: ClusterRegistry, partitions: Partitions, log_dir: LogDir, lost: Sequence[TopicPartition]
) -> None:
    """Answer those who wait for the partitions of a log directory that failed, and tell the controller."""
    log.error("log_directory_offline", directory=str(log_dir.path), partitions=len(lost))
    partitions.failed(lost)
    _report_lost_replicas(cluster)


def replica_damaged(cluster: ClusterRegistry, partition: TopicPartition) -> None:
    """Tell the controller that the log of a partition is damaged."""
    log.error("replica_damaged", partition=str(partition))
    _report_lost_replicas(cluster)


def _report_lost_replicas(cluster: ClusterRegistry) -> None:
    """Have the controller ask which replicas we still have; it elects other leaders for those that we lack."""
    try:
        cluster.report_log_dir_failure()
    except KafkaError as error:
        log.error("lost_replicas_not_reported", error=str(error))


def unregistered(membership: Membership, metadata: MetadataCache, partitions: Partitions) -> None:
    """Stop leading: the controller does not know this broker, and ZooKeeper is out of reach.

    Clients that still ask us are sent to other brokers. While the session is sure, the controller is merely late.
    """
    if not membership.may_lead_alone:
        metadata.session_expired()
        partitions.session_expired()
