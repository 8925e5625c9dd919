"""AddOffsetsToTxn: add the offsets partition of a group to a transaction."""

from __future__ import annotations

from ottla.protocol.message import Message, message, wire
from ottla.protocol.primitives import Int16, Int32, Int64, String


@message("0-4", flexible="3+")
class AddOffsetsToTxnRequest(Message):
    transactional_id: str = wire(String)
    producer_id: int = wire(Int64)
    producer_epoch: int = wire(Int16)
    group_id: str = wire(String)


@message("0-4", flexible="3+")
class AddOffsetsToTxnResponse(Message):
    throttle_time_ms: int = wire(Int32)
    error_code: int = wire(Int16)
