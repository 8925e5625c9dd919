"""ListTransactions: transactions that a coordinator knows; filters by state, producer and duration."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Int16, Int32, Int64, String


@message("0-1", flexible="0+")
class ListTransactionsRequest(Message):
    state_filters: list[str] = wire(Array(String))
    producer_id_filters: list[int] = wire(Array(Int64))
    duration_filter: int = wire(Int64, "1+", default=-1)


@struct
class TransactionState(Message):
    transactional_id: str = wire(String)
    producer_id: int = wire(Int64)
    transaction_state: str = wire(String)


@message("0-1", flexible="0+")
class ListTransactionsResponse(Message):
    throttle_time_ms: int = wire(Int32)
    error_code: int = wire(Int16)
    unknown_state_filters: list[str] = wire(Array(String))
    transaction_states: list[TransactionState] = wire(Array(TransactionState))
