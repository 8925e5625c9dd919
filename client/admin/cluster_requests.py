"""Requests about the cluster as a whole."""

from __future__ import annotations

from typing import Final

from ottla.client.admin.results import ApiSupport, BrokerDescription, ClusterDescription
from ottla.client.admin.routing import AdminRequests
from ottla.protocol.api import Api

_API_KEYS: Final = frozenset(Api)


async def describe_cluster(requests: AdminRequests) -> ClusterDescription:
    """Return the id of the cluster, its controller and its live brokers."""
    metadata = await requests.cluster.metadata((), force=True)
    brokers = tuple(
        BrokerDescription(broker.node_id, broker.host, broker.port, broker.rack)
        for _, broker in sorted(metadata.brokers.items())
    )
    return ClusterDescription(metadata.cluster_id, metadata.controller_id, brokers)


async def api_versions(requests: AdminRequests, broker_id: int) -> tuple[ApiSupport, ...]:
    """Return the APIs that a broker serves, with their versions."""
    connection = await requests.cluster.connection(broker_id)
    return tuple(
        ApiSupport(key, Api(key).label if key in _API_KEYS else "unknown", versions.first, versions.last)
        for key, versions in sorted(connection.versions.items())
    )
