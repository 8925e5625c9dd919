"""AlterClientQuotas: set or remove quotas."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Boolean, Float64, Int16, Int32, String


@struct
class RequestEntityData(Message):
    entity_type: str = wire(String)
    entity_name: str | None = wire(String, nullable="0+")


@struct
class OpData(Message):
    key: str = wire(String)
    value: float = wire(Float64)
    remove: bool = wire(Boolean)


@struct
class RequestEntryData(Message):
    entity: list[RequestEntityData] = wire(Array(RequestEntityData))
    ops: list[OpData] = wire(Array(OpData))


@message("0-1", flexible="1+")
class AlterClientQuotasRequest(Message):
    entries: list[RequestEntryData] = wire(Array(RequestEntryData))
    validate_only: bool = wire(Boolean)


@struct
class ResponseEntityData(Message):
    entity_type: str = wire(String)
    entity_name: str | None = wire(String, nullable="0+")


@struct
class ResponseEntryData(Message):
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, nullable="0+")
    entity: list[ResponseEntityData] = wire(Array(ResponseEntityData))


@message("0-1", flexible="1+")
class AlterClientQuotasResponse(Message):
    throttle_time_ms: int = wire(Int32)
    entries: list[ResponseEntryData] = wire(Array(ResponseEntryData))
