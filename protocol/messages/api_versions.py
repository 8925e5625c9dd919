"""ApiVersions: which APIs and versions the broker speaks. Answered with response header 0 in every version."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Boolean, Int16, Int32, Int64, String


@message("0-4", flexible="3+")
class ApiVersionsRequest(Message):
    client_software_name: str = wire(String, "3+", ignorable=True, default="")
    client_software_version: str = wire(String, "3+", ignorable=True, default="")


@struct
class ApiVersion(Message):
    api_key: int = wire(Int16)
    min_version: int = wire(Int16)
    max_version: int = wire(Int16)


@struct
class SupportedFeatureKey(Message):
    name: str = wire(String)
    min_version: int = wire(Int16)
    max_version: int = wire(Int16)


@struct
class FinalizedFeatureKey(Message):
    name: str = wire(String)
    max_version_level: int = wire(Int16)
    min_version_level: int = wire(Int16)


@message("0-4", flexible="3+")
class ApiVersionsResponse(Message):
    error_code: int = wire(Int16)
    api_keys: list[ApiVersion] = wire(Array(ApiVersion))
    throttle_time_ms: int = wire(Int32, "1+", ignorable=True, default=0)
    supported_features: list[SupportedFeatureKey] = wire(
        Array(SupportedFeatureKey), "3+", tag=0, ignorable=True, factory=list
    )
    finalized_features_epoch: int = wire(Int64, "3+", tag=1, ignorable=True, default=-1)
    finalized_features: list[FinalizedFeatureKey] = wire(
        Array(FinalizedFeatureKey), "3+", tag=2, ignorable=True, factory=list
    )
    zk_migration_ready: bool = wire(Boolean, "3+", tag=3, ignorable=True, default=False)
