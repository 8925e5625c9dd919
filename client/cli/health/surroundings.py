"""The brokers' options that tell where ZooKeeper and their HTTP ports are."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

from ottla.client.admin.admin import Admin
from ottla.client.admin.results import BrokerDescription, ConfigResource
from ottla.client.cli.health.http_pages import LISTENER
from ottla.client.cli.health.zookeeper_check import CONNECT
from ottla.client.errors import KafkaTimeoutError
from ottla.client.net.settings import HostPort
from ottla.protocol.config_resources import ConfigResourceType

# Long enough for any broker that answers at all.
_TIMEOUT_S: Final = 5.0


async def surroundings(admin: Admin, brokers: Collection[BrokerDescription]) -> tuple[dict[int, str], dict[int, str]]:
    """Return the HTTP listener and the ZooKeeper of each broker; KafkaTimeoutError if that takes too long."""
    pages: dict[int, str] = {}
    zookeepers: dict[int, str] = {}
    if not brokers:
        return pages, zookeepers
    resources = [ConfigResource(ConfigResourceType.BROKER, str(each.broker_id)) for each in brokers]
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            configs = await admin.describe_configs(resources, names=[LISTENER, CONNECT], raise_errors=False)
    except TimeoutError as error:
        raise KafkaTimeoutError(f"brokers did not return their options within {_TIMEOUT_S:g} s") from error
    for described in configs:
        values = {entry.name: entry.value for entry in described.entries}
        for name, found in ((LISTENER, pages), (CONNECT, zookeepers)):
            if value := values.get(name):
                found[int(described.resource_name)] = value
    return pages, zookeepers


def local_zookeeper(directory: Path, bootstrap: Iterable[HostPort]) -> str | None:
    """Return the ZooKeeper of the `ottla up` cluster in a directory, if one of these addresses belongs to it."""
    from ottla.client.local_cluster.cluster_dir import ClusterDir
    from ottla.client.local_cluster.errors import ClusterError

    try:
        record = ClusterDir(directory).read()
    except ClusterError:
        return None
    if record is None:
        return None
    ports = {each.port for each in record.brokers}
    is_its = any(each.port in ports and each.host in ("localhost", "127.0.0.1") for each in bootstrap)
    return record.zookeeper_connect if is_its else None
