"""InitProducerId: obtain a producer id and epoch."""

from __future__ import annotations

from ottla.protocol.message import Message, message, wire
from ottla.protocol.primitives import Int16, Int32, Int64, String


@message("0-5", flexible="2+")
class InitProducerIdRequest(Message):
    transactional_id: str | None = wire(String, nullable="0+")
    transaction_timeout_ms: int = wire(Int32)
    producer_id: int = wire(Int64, "3+", default=-1)
    producer_epoch: int = wire(Int16, "3+", default=-1)


@message("0-5", flexible="2+")
class InitProducerIdResponse(Message):
    throttle_time_ms: int = wire(Int32)
    error_code: int = wire(Int16)
    producer_id: int = wire(Int64, default=-1)
    producer_epoch: int = wire(Int16)
