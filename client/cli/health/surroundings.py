"""The brokers' options that tell where ZooKeeper and their HTTP ports are."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Final

from ottla.client.admin.admin import Admin
from ottla.client.admin.results import BrokerDescription, ConfigResource
from ottla.client.cli.health.http_pages import LISTENER
from ottla.client.cli.health.zookeeper_check import CONNECT
from ottla.client.errors import KafkaTimeoutError
from ottla.client.net.settings import HostPort
from ottla.protocol.config_resources import ConfigResourceType

# With less space than this on its disk, a broker of ours refuses records.
KEPT_FREE: Final = "ottla.log.min.free.bytes"
# Long enough for any broker that answers at all.
_TIMEOUT_S: Final = 5.0


async def surroundings(admin: Admin, brokers: Collection[BrokerDescription]) -> tuple[dict[int, str], dict[int, str]]:
    """Return the HTTP listener and the ZooKeeper of each broker; KafkaTimeoutError if that takes too long."""
    found = await _options(admin, [each.broker_id for each in brokers], (LISTENER, CONNECT))
    return found[LISTENER], found[CONNECT]


async def kept_free_bytes(admin: Admin, broker_ids: Collection[int]) -> dict[int, int]:
    """Return how many bytes each broker keeps free on its disks; nothing if they do not tell in time."""
    try:
        found = await _options(admin, broker_ids, (KEPT_FREE,))
    except KafkaTimeoutError:
        return {}
    return {broker_id: int(text) for broker_id, text in found[KEPT_FREE].items() if text.isdigit()}


async def _options(admin: Admin, broker_ids: Collection[int], names: Sequence[str]) -> dict[str, dict[int, str]]:
    """Return the values of options by broker, for each name; KafkaTimeoutError if that takes too long."""
    found: dict[str, dict[int, str]] = {name: {} for name in names}
    if not broker_ids:
        return found
    resources = [ConfigResource(ConfigResourceType.BROKER, str(each)) for each in broker_ids]
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            configs = await admin.describe_configs(resources, names=list(names), raise_errors=False)
    except TimeoutError as error:
        raise KafkaTimeoutError(f"brokers did not return their options within {_TIMEOUT_S:g} s") from error
    for described in configs:
        for entry in described.entries:
            if entry.value and entry.name in found:
                found[entry.name][int(described.resource_name)] = entry.value
    return found


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
