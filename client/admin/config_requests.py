"""Requests about the options of topics and brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from ottla.client.admin.results import (
    ConfigAppend,
    ConfigDescription,
    ConfigEntry,
    ConfigOutcome,
    ConfigResource,
    ConfigSubtract,
    ConfigSynonym,
)
from ottla.client.admin.routing import AdminRequests, error_of
from ottla.protocol.api import Api
from ottla.protocol.config_resources import ConfigResourceType
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

ConfigValue = str | ConfigAppend | ConfigSubtract | None

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


async def describe_configs(
    requests: AdminRequests,
    resources: Sequence[ConfigResource],
    *,
    names: Collection[str] | None,
    include_documentation: bool,
    include_synonyms: bool,
) -> list[ConfigDescription]:
    """Ask each broker about its own options, and any broker about the rest."""

    def request(part: Sequence[ConfigResource]) -> DescribeConfigsRequest:
        rows = [
            DescribeConfigsResource(
                resource_type=each.type,
                resource_name=each.name,
                configuration_keys=None if names is None else list(names),
            )
            for each in part
        ]
        return DescribeConfigsRequest(
            resources=rows, include_documentation=include_documentation, include_synonyms=include_synonyms
        )

    responses = await _where_they_are(requests, Api.DESCRIBE_CONFIGS, resources, request)
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
    return [found.get(each) or _forgotten(each) for each in resources]


async def alter_configs(
    requests: AdminRequests,
    changes: Mapping[ConfigResource, Mapping[str, ConfigValue]],
    *,
    validate_only: bool,
) -> list[ConfigOutcome]:
    """Ask each broker to change its own options, and any broker to change the rest."""

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

    responses = await _where_they_are(requests, Api.INCREMENTAL_ALTER_CONFIGS, list(changes), request)
    return [
        ConfigOutcome(
            ConfigResourceType(row.resource_type).name.lower(),
            row.resource_name,
            error_of(row.error_code, row.error_message, row.resource_name),
        )
        for response in responses
        for row in response.responses
    ]


async def _where_they_are(
    requests: AdminRequests, api: Api, resources: Sequence[ConfigResource], request: Any
) -> list[Any]:
    """Ask each broker for its own options, and any broker for the rest."""
    own = [each for each in resources if each.type in _BY_BROKER and each.name]
    rest = [each for each in resources if each not in own]
    asked = [requests.cluster.send(int(each.name), api, request([each])) for each in own]
    if rest:
        asked.append(requests.cluster.send_any(api, request(rest)))
    return list(await asyncio.gather(*asked))


def _forgotten(resource: ConfigResource) -> ConfigDescription:
    error = error_of(ErrorCode.UNKNOWN_SERVER_ERROR, None, f"the broker did not answer for {resource.name!r}")
    return ConfigDescription(resource.type.name.lower(), resource.name, (), error)


def _entry(row: DescribeConfigsResourceResult) -> ConfigEntry:
    # Version 0 says only whether the value is the default.
    source = _source(row.config_source)
    return ConfigEntry(
        row.name,
        row.value,
        source,
        row.is_default or source == _DEFAULT_SOURCE,
        row.is_sensitive,
        row.read_only,
        row.documentation or None,
        tuple(ConfigSynonym(each.name, each.value, _source(each.source)) for each in row.synonyms or ()),
    )


def _source(code: int) -> str:
    return _SOURCES.get(code, "" if code < _WITHOUT_SOURCE else str(code))


def _alterable(name: str, value: ConfigValue) -> AlterableConfig:
    if isinstance(value, ConfigAppend):
        return AlterableConfig(name=name, config_operation=_APPEND, value=value.value)
    if isinstance(value, ConfigSubtract):
        return AlterableConfig(name=name, config_operation=_SUBTRACT, value=value.value)
    return AlterableConfig(name=name, config_operation=_DELETE if value is None else _SET, value=value)
