"""IncrementalAlterConfigs (44), versions 0-1.

Behavior: changes single options of a topic or broker and keeps the others. The operations are set, delete (back to the
default), append items to a list, and subtract items (INVALID_CONFIG if the option is not a list). The rest is as in
AlterConfigs: all changes of a resource or none, the same errors, the same brokers. An unknown operation is
INVALID_REQUEST.
"""

from __future__ import annotations

from functools import partial

from ottla.broker.cluster.configs import ConfigChange, ConfigOperation, changed_config
from ottla.broker.config.names import broker_option
from ottla.broker.requests.config_resources import (
    alter_each,
    check_access,
    check_alterable,
    check_thread_counts,
    note_options,
)
from ottla.broker.requests.request import AdminRequest
from ottla.protocol.config_resources import ConfigResourceType
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


def incremental_alter_configs(request: AdminRequest) -> IncrementalAlterConfigsResponse:
    """Change options of resources."""
    body: IncrementalAlterConfigsRequest = request.body
    return IncrementalAlterConfigsResponse(
        throttle_time_ms=0, responses=alter_each(body.resources, partial(_change, request))
    )


def _change(request: AdminRequest, resource: AlterConfigsResource) -> None:
    check_access(request, resource)
    changes = [_wanted(config) for config in resource.configs]
    check_alterable(
        resource,
        changes,
        [change for change in changes if change.value is None and change.operation is not ConfigOperation.DELETE],
    )
    services, name = request.services, resource.resource_name
    validate_only = request.body.validate_only
    if resource.resource_type == ConfigResourceType.TOPIC:
        difference = services.cluster.change_topic_config(name, changes, validate_only=validate_only)
        note_options(request, resource, difference)
        return

    def effective(option: str) -> str | None:
        return services.config().resolve(option).value

    check_thread_counts(services, name, lambda current: changed_config(current, changes, broker_option, effective))
    difference = services.cluster.change_broker_config(name, changes, validate_only=validate_only)
    note_options(request, resource, difference)


def _wanted(config: AlterableConfig) -> ConfigChange:
    try:
        operation = ConfigOperation(config.config_operation)
    except ValueError:
        detail = f"{config.name}: unknown operation {config.config_operation}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, detail) from None
    return ConfigChange(config.name, operation, config.value)
