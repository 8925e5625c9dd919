"""AlterConfigs (33), versions 0-2.

Behavior: sets the options of a topic or broker to exactly those given; what was set before and is not given is back at
its default. Nothing of a resource is changed if one of its options is refused: unknown, not valid, fixed until a
restart, or a number of threads beyond half or double of the present is INVALID_CONFIG, named twice or without a value
INVALID_REQUEST. Any broker changes topics (unknown: UNKNOWN_TOPIC_OR_PARTITION) and, without a name, the options of all
brokers, which excludes those that each broker has of its own; a broker that is named must be the one that is asked.
Other resources, and one that is named twice: INVALID_REQUEST. `validate_only` checks only.
"""

from __future__ import annotations

from functools import partial

from ottla.broker.requests.config_resources import (
    ConfigResourceType,
    alter_each,
    check_access,
    check_alterable,
    check_thread_counts,
)
from ottla.broker.requests.request import AdminRequest
from ottla.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


def alter_configs(request: AdminRequest) -> AlterConfigsResponse:
    """Replace the options of resources."""
    body: AlterConfigsRequest = request.body
    return AlterConfigsResponse(
        throttle_time_ms=0,
        responses=[
            AlterConfigsResourceResponse(
                error_code=outcome.code,
                error_message=outcome.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource, outcome in alter_each(body.resources, partial(_replace, request))
        ],
    )


def _replace(request: AdminRequest, resource: AlterConfigsResource) -> None:
    check_access(request, resource)
    check_alterable(resource, resource.configs, [config for config in resource.configs if config.value is None])
    options = {config.name: config.value for config in resource.configs if config.value is not None}
    services, name = request.services, resource.resource_name
    validate_only = request.body.validate_only
    if resource.resource_type == ConfigResourceType.TOPIC:
        services.cluster.replace_topic_config(name, options, validate_only=validate_only)
    else:
        check_thread_counts(services, name, lambda _current: options)
        services.cluster.replace_broker_config(name, options, validate_only=validate_only)
