"""EndTxn: commit or abort a transaction."""

from __future__ import annotations

from ottla.protocol.message import Message, message, wire
from ottla.protocol.primitives import Boolean, Int16, Int32, Int64, String


@message("0-4", flexible="3+")
class EndTxnRequest(Message):
    transactional_id: str = wire(String)
    producer_id: int = wire(Int64)
    producer_epoch: int = wire(Int16)
    committed: bool = wire(Boolean)


@message("0-4", flexible="3+")
class EndTxnResponse(Message):
    throttle_time_ms: int = wire(Int32)
    error_code: int = wire(Int16)
