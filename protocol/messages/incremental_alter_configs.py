"""IncrementalAlterConfigs: set, delete, append to or subtract from single options."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.messages.alter_configs import AlterConfigsResourceResponse
from ottla.protocol.primitives import Array, Boolean, Int8, Int32, String


@struct
class AlterableConfig(Message):
    name: str = wire(String)
    config_operation: int = wire(Int8)
    value: str | None = wire(String, nullable="0+")


@struct
class AlterConfigsResource(Message):
    resource_type: int = wire(Int8)
    resource_name: str = wire(String)
    configs: list[AlterableConfig] = wire(Array(AlterableConfig))


@message("0-1", flexible="1+")
class IncrementalAlterConfigsRequest(Message):
    resources: list[AlterConfigsResource] = wire(Array(AlterConfigsResource))
    validate_only: bool = wire(Boolean)


@message("0-1", flexible="1+")
class IncrementalAlterConfigsResponse(Message):
    throttle_time_ms: int = wire(Int32)
    responses: list[AlterConfigsResourceResponse] = wire(Array(AlterConfigsResourceResponse))
