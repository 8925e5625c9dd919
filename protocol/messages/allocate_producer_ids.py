"""AllocateProducerIds: a broker obtains a block of producer ids from the controller."""

from __future__ import annotations

from ottla.protocol.message import Message, message, wire
from ottla.protocol.primitives import Int16, Int32, Int64


@message("0", flexible="0+")
class AllocateProducerIdsRequest(Message):
    broker_id: int = wire(Int32)
    broker_epoch: int = wire(Int64, default=-1)


@message("0", flexible="0+")
class AllocateProducerIdsResponse(Message):
    throttle_time_ms: int = wire(Int32)
    error_code: int = wire(Int16)
    producer_id_start: int = wire(Int64)
    producer_id_len: int = wire(Int32)
