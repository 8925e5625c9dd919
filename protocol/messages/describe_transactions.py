"""DescribeTransactions: the state of transactions."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Int16, Int32, Int64, String


@message("0", flexible="0+")
class DescribeTransactionsRequest(Message):
    transactional_ids: list[str] = wire(Array(String))


@struct
class TopicData(Message):
    topic: str = wire(String)
    partitions: list[int] = wire(Array(Int32))


@struct
class TransactionState(Message):
    error_code: int = wire(Int16)
    transactional_id: str = wire(String)
    transaction_state: str = wire(String)
    transaction_timeout_ms: int = wire(Int32)
    transaction_start_time_ms: int = wire(Int64)
    producer_id: int = wire(Int64)
    producer_epoch: int = wire(Int16)
    topics: list[TopicData] = wire(Array(TopicData))


@message("0", flexible="0+")
class DescribeTransactionsResponse(Message):
    throttle_time_ms: int = wire(Int32)
    transaction_states: list[TransactionState] = wire(Array(TransactionState))
