"""What a cluster says about itself: versions, features, and options that give its software away."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ottla.client.errors import BrokerNotAvailableError, KafkaError
from ottla.client.net.cluster_client import ClusterClient
from ottla.client.net.settings import ClientSettings
from ottla.protocol.api import Api
from ottla.protocol.config_resources import ConfigResourceType
from ottla.protocol.message import Versions
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

_FEATURES_VERSION: Final = 3
_METADATA_VERSION: Final = "metadata.version"
_PROTOCOL_VERSION: Final = "inter.broker.protocol.version"
# The first release of Kafka that knows a level of the feature metadata.version.
_RELEASES: Final = {7: "3.3", 8: "3.4", 11: "3.5", 14: "3.6", 19: "3.7", 20: "3.8", 21: "3.9", 25: "4.0", 27: "4.1"}
_KNOWN: Final = frozenset(Api)


@dataclass(frozen=True)
class Identity:
    """A cluster as it presents itself. `unknown_apis` are offered, but we have no messages for them."""

    software: str
    cluster_id: str | None
    brokers: int
    versions: Mapping[Api, Versions]
    unknown_apis: tuple[int, ...] = ()
    newer_versions: tuple[str, ...] = ()
    features: tuple[str, ...] = ()


async def identify(settings: ClientSettings) -> Identity:
    """Ask a cluster who it is; KafkaError if it cannot be reached."""
    async with ClusterClient(settings) as client:
        if not client.brokers:
            raise BrokerNotAvailableError("Metadata names no broker")
        node = min(client.brokers)
        connection = await client.connection(node)
        offered = connection.versions
        features = await _features(client, node, offered)
        options = await _options(client, node)
        known = {Api(key): offered[key] for key in sorted(offered) if key in _KNOWN}
        newer = tuple(
            f"{api.label} {Versions(api.versions.last + 1, versions.last)}"
            for api, versions in known.items()
            if versions.last > api.versions.last
        )
        return Identity(
            software=_software(features, options),
            cluster_id=client.cluster_id,
            brokers=len(client.brokers),
            versions=known,
            unknown_apis=tuple(sorted(set(offered) - set(_KNOWN))),
            newer_versions=newer,
            features=tuple(f"{name} {level}" for name, level in features.items()),
        )


async def _features(client: ClusterClient, node: int, offered: Mapping[int, Versions]) -> dict[str, int]:
    if _FEATURES_VERSION not in offered[Api.API_VERSIONS]:
        return {}
    request = ApiVersionsRequest(client_software_name="ottla", client_software_version="1")
    response = await client.send(node, Api.API_VERSIONS, request, version_min=_FEATURES_VERSION)
    supported = {row.name: row.max_version for row in response.supported_features}
    return supported | {row.name: row.max_version_level for row in response.finalized_features}


async def _options(client: ClusterClient, node: int) -> dict[str, str]:
    """Return the options of a broker; nothing if the user may not see them."""
    resource = DescribeConfigsResource(
        resource_type=ConfigResourceType.BROKER, resource_name=str(node), configuration_keys=None
    )
    try:
        response = await client.send(node, Api.DESCRIBE_CONFIGS, DescribeConfigsRequest(resources=[resource]))
    except KafkaError:
        return {}
    # Kafka also lists options that it does not know; they have no type. Old versions have no types at all.
    rows = [row for each in response.results for row in each.configs]
    has_types = any(row.config_type for row in rows)
    return {row.name: row.value or "" for row in rows if row.config_type or not has_types}


def _software(features: Mapping[str, int], options: Mapping[str, str]) -> str:
    release = options.get(_PROTOCOL_VERSION, "").partition("-")[0] or _release(features.get(_METADATA_VERSION, 0))
    if _has(options, "ottla."):
        return f"Ottla (protocol of Kafka {release})" if release else "Ottla"
    if _has(options, "redpanda."):
        return "Redpanda"
    return f"Apache Kafka {release}, or compatible with it" if release else "unknown"


def _has(options: Iterable[str], start: str) -> bool:
    return any(name.startswith(start) for name in options)


def _release(level: int) -> str:
    return next((release for known, release in _RELEASES.items() if level <= known), "") if level > 0 else ""
