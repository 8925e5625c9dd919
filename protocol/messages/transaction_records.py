"""Records of `__transaction_state`: an int16 version, then these fields."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Int8, Int16, Int32, Int64, String


@message("0")
class TransactionLogKey(Message):
    transactional_id: str = wire(String)


@struct
class PartitionsSchema(Message):
    topic: str = wire(String)
    partition_ids: list[int] = wire(Array(Int32))


@message("0-1", flexible="1+")
class TransactionLogValue(Message):
    producer_id: int = wire(Int64)
    producer_epoch: int = wire(Int16)
    transaction_timeout_ms: int = wire(Int32)
    transaction_status: int = wire(Int8)
    transaction_partitions: list[PartitionsSchema] | None = wire(Array(PartitionsSchema), nullable="0+")
    transaction_last_update_timestamp_ms: int = wire(Int64)
    transaction_start_timestamp_ms: int = wire(Int64)
