"""Admin's calls about the cluster and the options of topics and brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from ottla.client.admin.results import (
    ApiSupport,
    Append,
    BrokerDescription,
    ClusterDescription,
    ConfigDescription,
    ConfigEntry,
    ConfigOutcome,
    ConfigResource,
    ConfigResourceType,
    Subtract,
)
from ottla.client.admin.routing import AdminRequests, error_of, raised
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

ConfigValue = str | Append | Subtract | None

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
_DEFAULT_SOURCE: Final = "default"
_SOURCES: Final = {
    1: "topic",
    2: "broker (dynamic)",
    3: "cluster (dynamic)",
    4: "broker (static)",
    5: _DEFAULT_SOURCE,
    6: "logger",
    7: "client metrics",
    8: "group",
}
_WITHOUT_SOURCE: Final = 0
_BY_BROKER: Final = (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)


class ClusterCalls(AdminRequests):
    """Describe the cluster; read and change options."""

    async def describe_cluster(self) -> ClusterDescription:
        """Return the id of the cluster, its controller and its live brokers."""
        metadata = await self._cluster.metadata((), force=True)
        brokers = tuple(
            BrokerDescription(broker.node_id, broker.host, broker.port, broker.rack)
            for _, broker in sorted(metadata.brokers.items())
        )
        return ClusterDescription(metadata.cluster_id, metadata.controller_id, brokers)

    async def api_versions(self, broker_id: int) -> tuple[ApiSupport, ...]:
        """Return which APIs a broker serves, in which versions."""
        connection = await self._cluster.connection(broker_id)
        return tuple(
            ApiSupport(key, Api(key).label if key in _API_KEYS else "unknown", versions.first, versions.last)
            for key, versions in sorted(connection.versions.items())
        )

    async def describe_configs(
        self,
        resources: Sequence[ConfigResource],
        *,
        names: Collection[str] | None = None,
        include_documentation: bool = False,
        raise_errors: bool = True,
    ) -> tuple[ConfigDescription, ...]:
        """Return the options of topics and brokers, all of them or those with these names."""

        def request(part: Sequence[ConfigResource]) -> DescribeConfigsRequest:
            rows = [
                DescribeConfigsResource(
                    resource_type=each.type,
                    resource_name=each.name,
                    configuration_keys=None if names is None else list(names),
                )
                for each in part
            ]
            return DescribeConfigsRequest(resources=rows, include_documentation=include_documentation)

        responses = await self._where_they_are(Api.DESCRIBE_CONFIGS, resources, request)
        found = {
            ConfigResource(ConfigResourceType(row.resource_type), row.resource_name): ConfigDescription(
                ConfigResourceType(row.resource_type).name.lower(),
                row.resource_name,
                tuple(sorted(map(_entry, row.configs), key=lambda entry: entry.name)),
                error_of(row.error_code, row.error_message, row.resource_name),
            )
            for response in responses
            for row in response.results
        }
        return raised([found.get(each) or _forgotten(each) for each in resources], raise_errors)

    async def alter_configs(
        self,
        changes: Mapping[ConfigResource, Mapping[str, ConfigValue]],
        *,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> tuple[ConfigOutcome, ...]:
        """Change options and leave all others; None takes an option back to its default."""

        def request(part: Sequence[ConfigResource]) -> IncrementalAlterConfigsRequest:
            rows = [
                AlterConfigsResource(
                    resource_type=each.type,
                    resource_name=each.name,
                    configs=[_alterable(name, value) for name, value in changes[each].items()],
                )
                for each in part
            ]
            return IncrementalAlterConfigsRequest(resources=rows, validate_only=validate_only)

        responses = await self._where_they_are(Api.INCREMENTAL_ALTER_CONFIGS, list(changes), request)
        outcomes = [
            ConfigOutcome(
                ConfigResourceType(row.resource_type).name.lower(),
                row.resource_name,
                error_of(row.error_code, row.error_message, row.resource_name),
            )
            for response in responses
            for row in response.responses
        ]
        return raised(outcomes, raise_errors)

    async def _where_they_are(self, api: Api, resources: Sequence[ConfigResource], request: Any) -> list[Any]:
        """Ask each broker for its own options, and any broker for the rest."""
        own = [each for each in resources if each.type in _BY_BROKER and each.name]
        rest = [each for each in resources if each not in own]
        asked = [self._cluster.send(int(each.name), api, request([each])) for each in own]
        if rest:
            asked.append(self._cluster.send_any(api, request(rest)))
        return list(await asyncio.gather(*asked))


_API_KEYS: Final = frozenset(Api)


def _forgotten(resource: ConfigResource) -> ConfigDescription:
    error = error_of(ErrorCode.UNKNOWN_SERVER_ERROR, None, f"the broker did not answer for {resource.name!r}")
    return ConfigDescription(resource.type.name.lower(), resource.name, (), error)


def _entry(row: DescribeConfigsResourceResult) -> ConfigEntry:
    # Version 0 knows only whether it is the default.
    source = _SOURCES.get(row.config_source, "" if row.config_source < _WITHOUT_SOURCE else str(row.config_source))
    return ConfigEntry(
        row.name,
        row.value,
        source,
        row.is_default or source == _DEFAULT_SOURCE,
        row.is_sensitive,
        row.read_only,
        row.documentation or None,
    )


def _alterable(name: str, value: ConfigValue) -> AlterableConfig:
    if isinstance(value, Append):
        return AlterableConfig(name=name, config_operation=_APPEND, value=value.value)
    if isinstance(value, Subtract):
        return AlterableConfig(name=name, config_operation=_SUBTRACT, value=value.value)
    return AlterableConfig(name=name, config_operation=_DELETE if value is None else _SET, value=value)
