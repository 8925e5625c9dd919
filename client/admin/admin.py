"""The admin client.

    async with Admin(bootstrap_servers="localhost:9092") as admin:
        await admin.create_topics([NewTopic("orders", num_partitions=6)])
        for topic in await admin.list_topics():
            print(topic.name, topic.num_partitions)

Calls that concern many things return one result for each. If one of them failed its error is raised; with
`raise_errors=False` all results are returned, and each has its `error`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from ottla.client.admin.configs import ClusterCalls
from ottla.client.admin.groups import GroupCalls
from ottla.client.admin.partitions import PartitionCalls
from ottla.client.admin.security import SecurityCalls
from ottla.client.admin.topics import TopicCalls
from ottla.client.net.cluster_client import Cluster
from ottla.client.net.settings import ClientSettings


class Admin(TopicCalls, PartitionCalls, ClusterCalls, GroupCalls, SecurityCalls):
    """All that can be asked of a cluster, and changed in it; use it on one event loop, as a context or with start."""

    def __init__(self, **settings: Any) -> None:
        """Take the options of ClientSettings."""
        super().__init__(ClientSettings.from_kwargs(settings))

    @classmethod
    def from_config(cls, config: Mapping[str, Any] | Path | str, **overrides: Any) -> Self:
        """Take options by Kafka's dotted names, from a mapping or a .properties file."""
        return cls(**(ClientSettings.kwargs_from_config(config) | overrides))

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def cluster(self) -> Cluster:
        """Connections and metadata, for requests that have no call here."""
        return self._cluster

    async def start(self) -> None:
        """Reach the cluster; NoBrokersAvailable if no bootstrap server answers."""
        await self._cluster.start()

    async def close(self) -> None:
        """Close all connections."""
        await self._cluster.close()
