"""DescribeConfigs: options of topics and brokers with their sources and synonyms."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Boolean, Int8, Int16, Int32, String


@struct
class DescribeConfigsResource(Message):
    resource_type: int = wire(Int8)
    resource_name: str = wire(String)
    configuration_keys: list[str] | None = wire(Array(String), nullable="0+")


@message("0-4", flexible="4+")
class DescribeConfigsRequest(Message):
    resources: list[DescribeConfigsResource] = wire(Array(DescribeConfigsResource))
    include_synonyms: bool = wire(Boolean, "1+", default=False)
    include_documentation: bool = wire(Boolean, "3+", default=False)


@struct
class DescribeConfigsSynonym(Message):
    name: str = wire(String)
    value: str | None = wire(String, nullable="0+")
    source: int = wire(Int8)


@struct
class DescribeConfigsResourceResult(Message):
    name: str = wire(String)
    value: str | None = wire(String, nullable="0+")
    read_only: bool = wire(Boolean)
    is_default: bool = wire(Boolean, "0", default=False)
    config_source: int = wire(Int8, "1+", ignorable=True, default=-1)
    is_sensitive: bool = wire(Boolean)
    synonyms: list[DescribeConfigsSynonym] = wire(Array(DescribeConfigsSynonym), "1+", ignorable=True, factory=list)
    config_type: int = wire(Int8, "3+", ignorable=True, default=0)
    documentation: str | None = wire(String, "3+", nullable="0+", ignorable=True, default="")


@struct
class DescribeConfigsResult(Message):
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, nullable="0+")
    resource_type: int = wire(Int8)
    resource_name: str = wire(String)
    configs: list[DescribeConfigsResourceResult] = wire(Array(DescribeConfigsResourceResult))


@message("0-4", flexible="4+")
class DescribeConfigsResponse(Message):
    throttle_time_ms: int = wire(Int32)
    results: list[DescribeConfigsResult] = wire(Array(DescribeConfigsResult))
