"""AlterConfigs (33), versions 0-2.

Behavior: sets the options of a topic or broker to exactly those given; all others return to their defaults. If one
option of a resource is refused, none is changed. INVALID_CONFIG: an option that is unknown, invalid or fixed until a
restart, or a number of threads that is not between half and double the current one. INVALID_REQUEST: an option that is
named twice or has no value, a resource that is named twice, and resources other than topics and brokers.
UNKNOWN_TOPIC_OR_PARTITION: an unknown topic. Any broker changes topics. A broker resource without a name stands for all
brokers, and any broker changes those options, except the ones that each broker sets for itself. A broker that is named
by its id changes its own options only. `validate_only` only checks.
"""

from __future__ import annotations

from functools import partial

from ottla.broker.requests.config_resources import (
    alter_each,
    check_access,
    check_alterable,
    check_thread_counts,
    note_options,
)
from ottla.broker.requests.request import AdminRequest
from ottla.protocol.config_resources import ConfigResourceType
from ottla.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
)


def alter_configs(request: AdminRequest) -> AlterConfigsResponse:
    """Replace the options of resources."""
    body: AlterConfigsRequest = request.body
    return AlterConfigsResponse(throttle_time_ms=0, responses=alter_each(body.resources, partial(_replace, request)))


def _replace(request: AdminRequest, resource: AlterConfigsResource) -> None:
    check_access(request, resource)
    check_alterable(resource, resource.configs, [config for config in resource.configs if config.value is None])
    options = {config.name: config.value for config in resource.configs if config.value is not None}
    services, name = request.services, resource.resource_name
    validate_only = request.body.validate_only
    if resource.resource_type == ConfigResourceType.TOPIC:
        difference = services.cluster.replace_topic_config(name, options, validate_only=validate_only)
    else:
        check_thread_counts(services, name, lambda _current: options)
        difference = services.cluster.replace_broker_config(name, options, validate_only=validate_only)
    note_options(request, resource, difference)
