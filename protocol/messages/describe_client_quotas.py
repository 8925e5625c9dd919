"""DescribeClientQuotas: quotas by user and client id."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Boolean, Float64, Int8, Int16, Int32, String


@struct
class ComponentData(Message):
    entity_type: str = wire(String)
    match_type: int = wire(Int8)
    match: str | None = wire(String, nullable="0+")


@message("0-1", flexible="1+")
class DescribeClientQuotasRequest(Message):
    components: list[ComponentData] = wire(Array(ComponentData))
    strict: bool = wire(Boolean)


@struct
class EntityData(Message):
    entity_type: str = wire(String)
    entity_name: str | None = wire(String, nullable="0+")


@struct
class ValueData(Message):
    key: str = wire(String)
    value: float = wire(Float64)


@struct
class EntryData(Message):
    entity: list[EntityData] = wire(Array(EntityData))
    values: list[ValueData] = wire(Array(ValueData))


@message("0-1", flexible="1+")
class DescribeClientQuotasResponse(Message):
    throttle_time_ms: int = wire(Int32)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, nullable="0+")
    entries: list[EntryData] | None = wire(Array(EntryData), nullable="0+")
