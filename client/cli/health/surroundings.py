"""The brokers' options that tell where ZooKeeper and their HTTP ports are."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from ottla.client.admin.admin import Admin
from ottla.client.admin.results import BrokerDescription, ConfigResource
from ottla.client.cli.health.http_pages import LISTENER
from ottla.client.cli.health.zookeeper_check import CONNECT
from ottla.client.errors import KafkaTimeoutError
from ottla.client.net.settings import HostPort
from ottla.protocol.config_resources import ConfigResourceType

_KEPT_BYTES: Final = "ottla.log.min.free.bytes"
_KEPT_PERCENT: Final = "ottla.log.min.free.percent"
# Long enough for any broker that answers at all.
_TIMEOUT_S: Final = 5.0


async def surroundings(admin: Admin, brokers: Collection[BrokerDescription]) -> tuple[dict[int, str], dict[int, str]]:
    """Return the HTTP listener and the ZooKeeper of each broker; KafkaTimeoutError if that takes too long."""
    found = await _options(admin, [each.broker_id for each in brokers], (LISTENER, CONNECT))
    return found[LISTENER], found[CONNECT]


class KeptFree(NamedTuple):
    """The space that a broker of ours keeps free on its disks: with less than that, it refuses records."""

    free_bytes: int = 0
    free_percent: float = 0.0

    def of(self, total_bytes: int) -> tuple[str, int]:
        """Return the option that counts for a disk of this size, and the bytes that it keeps free."""
        share = int(total_bytes * self.free_percent / 100)
        return (_KEPT_PERCENT, share) if share > self.free_bytes else (_KEPT_BYTES, self.free_bytes)


async def kept_free_space(admin: Admin, broker_ids: Collection[int]) -> dict[int, KeptFree]:
    """Return how much space each broker keeps free on its disks; nothing if they do not tell in time."""
    try:
        found = await _options(admin, broker_ids, (_KEPT_BYTES, _KEPT_PERCENT))
    except KafkaTimeoutError:
        return {}
    percents = found[_KEPT_PERCENT]
    return {
        broker_id: KeptFree(int(text), float(percents.get(broker_id, "0")))
        for broker_id, text in found[_KEPT_BYTES].items()
    }


async def _options(admin: Admin, broker_ids: Collection[int], names: Sequence[str]) -> dict[str, dict[int, str]]:
    """Return the values of options by broker, for each name; KafkaTimeoutError if that takes too long.

    A broker that loses ZooKeeper meanwhile answers with an error. One without the option does not use ZooKeeper.
    """
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
        if described.error is not None and described.error.retriable:
            raise KafkaTimeoutError(f"broker {described.resource_name} could not read its options: {described.error}")
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
