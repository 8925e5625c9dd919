"""DescribeConfigs (32), versions 0-4.

Behavior: returns all options of a topic or broker, or those that are named: the value, its source, and whether it can
be changed without a restart. Any broker describes topics. A broker that is named by its id describes only itself:
INVALID_REQUEST on another broker. A broker resource without a name stands for all brokers; it lists only the dynamic
options that are set for all of them. Secret values are null. Unknown option names are left out. An unknown topic is
UNKNOWN_TOPIC_OR_PARTITION. Broker loggers, client metrics and other resources have no options here: INVALID_REQUEST.

The values are read from ZooKeeper for each request, so a client sees what it has just changed. While a broker has no
connection to ZooKeeper, it describes its own options as they are in effect, as Kafka always does.

Version notes: version 0 tells only whether a value is the default. Version 1 adds the source and, if requested, the
values that it overrides, in order of precedence. Version 3 adds the type and, if requested, the documentation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ottla.broker.cluster.cluster_registry import ALL_BROKERS
from ottla.broker.common.topic_names import check_topic_name
from ottla.broker.config import (
    BROKER_OPTIONS,
    TOPIC_OPTIONS,
    BrokerConfig,
    ConfigError,
    ConfigSource,
    Dynamic,
    Resolved,
)
from ottla.broker.config.names import broker_option
from ottla.broker.requests.config_resources import check_access, current_broker_config
from ottla.broker.requests.outcome import DONE, Outcome
from ottla.broker.requests.request import AdminRequest
from ottla.protocol.config_resources import ConfigResourceType
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


def describe_configs(request: AdminRequest) -> DescribeConfigsResponse:
    """Describe options."""
    body: DescribeConfigsRequest = request.body
    asked = {(resource.resource_type, resource.resource_name): resource for resource in reversed(body.resources)}
    return DescribeConfigsResponse(
        throttle_time_ms=0, results=[_describe(request, resource) for resource in reversed(asked.values())]
    )


def _describe(request: AdminRequest, resource: DescribeConfigsResource) -> DescribeConfigsResult:
    outcome, configs = DONE, []
    wanted = None if resource.configuration_keys is None else set(resource.configuration_keys)
    try:
        configs = [
            _entry(request, name, found, is_fixed)
            for name, found, is_fixed in _options(request, resource)
            if wanted is None or name in wanted
        ]
    except KafkaError as error:
        outcome = Outcome.refused(error)
    except ConfigError as error:
        # Somebody wrote an invalid value directly to ZooKeeper. No broker uses it.
        outcome = Outcome.of(ErrorCode.INVALID_CONFIG, str(error))
    return DescribeConfigsResult(
        error_code=outcome.code,
        error_message=outcome.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=configs,
    )


def _options(request: AdminRequest, resource: DescribeConfigsResource) -> Iterable[tuple[str, Resolved, bool]]:
    """Yield the options of a resource: name, value, and whether a change needs a restart."""
    check_access(request, resource)
    name = resource.resource_name
    if resource.resource_type == ConfigResourceType.TOPIC:
        return _of_topic(request, name)
    if resource.resource_type != ConfigResourceType.BROKER:
        detail = f"only topics and brokers have options, not resources of type {resource.resource_type}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, detail)
    if name == ALL_BROKERS:
        return _of_all_brokers(current_broker_config(request.services))
    if name != str(request.services.cluster.broker_id):
        detail = f"this is broker {request.services.cluster.broker_id}; ask broker {name} for its options"
        raise KafkaError(ErrorCode.INVALID_REQUEST, detail)
    return _of_broker(current_broker_config(request.services))


def _of_topic(request: AdminRequest, name: str) -> Iterator[tuple[str, Resolved, bool]]:
    check_topic_name(name)
    if request.services.metadata.snapshot.topic(name) is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
    config = request.services.cluster.topic_config(name)
    for option in TOPIC_OPTIONS:
        yield option, config.resolve(option), False


def _of_broker(config: BrokerConfig) -> Iterator[tuple[str, Resolved, bool]]:
    set_names = {name for layer in config.layers for name in layer.settings if broker_option(name) is not None}
    of_listeners = sorted(set_names - BROKER_OPTIONS.keys())
    for name in (*BROKER_OPTIONS, *of_listeners):
        found = config.resolve(name)
        yield name, found, found.option.dynamic is Dynamic.READ_ONLY


def _of_all_brokers(config: BrokerConfig) -> Iterator[tuple[str, Resolved, bool]]:
    for layer in config.layers:
        if layer.source is not ConfigSource.DYNAMIC_DEFAULT_BROKER:
            continue
        for name in sorted(layer.settings):
            if name in BROKER_OPTIONS:
                found = config.resolve(name)
                synonyms = tuple(each for each in found.synonyms if each.source is layer.source)
                yield name, Resolved(found.option, synonyms[0].value, layer.source, synonyms), False


def _entry(request: AdminRequest, name: str, found: Resolved, is_fixed: bool) -> DescribeConfigsResourceResult:
    body: DescribeConfigsRequest = request.body
    return DescribeConfigsResourceResult(
        name=name,
        value=found.value,
        read_only=is_fixed,
        is_default=request.version == 0 and found.source is ConfigSource.DEFAULT,
        config_source=found.source,
        is_sensitive=found.option.sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=each.name, value=each.value, source=each.source) for each in found.synonyms
        ]
        if body.include_synonyms
        else [],
        config_type=found.option.kind.type,
        documentation=found.option.documentation if body.include_documentation else None,
    )
