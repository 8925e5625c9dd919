"""AddPartitionsToTxn: add partitions to a transaction; from version 4 brokers verify several at once."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Boolean, Int16, Int32, Int64, String


@struct
class AddPartitionsToTxnTopic(Message):
    name: str = wire(String)
    partitions: list[int] = wire(Array(Int32))


@struct
class AddPartitionsToTxnTransaction(Message):
    transactional_id: str = wire(String)
    producer_id: int = wire(Int64)
    producer_epoch: int = wire(Int16)
    verify_only: bool = wire(Boolean, default=False)
    topics: list[AddPartitionsToTxnTopic] = wire(Array(AddPartitionsToTxnTopic))


@message("0-5", flexible="3+")
class AddPartitionsToTxnRequest(Message):
    transactions: list[AddPartitionsToTxnTransaction] = wire(Array(AddPartitionsToTxnTransaction), "4+", factory=list)
    v3_and_below_transactional_id: str = wire(String, "0-3", default="")
    v3_and_below_producer_id: int = wire(Int64, "0-3", default=0)
    v3_and_below_producer_epoch: int = wire(Int16, "0-3", default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = wire(Array(AddPartitionsToTxnTopic), "0-3", factory=list)


@struct
class AddPartitionsToTxnPartitionResult(Message):
    partition_index: int = wire(Int32)
    partition_error_code: int = wire(Int16)


@struct
class AddPartitionsToTxnTopicResult(Message):
    name: str = wire(String)
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = wire(Array(AddPartitionsToTxnPartitionResult))


@struct
class AddPartitionsToTxnResult(Message):
    transactional_id: str = wire(String)
    topic_results: list[AddPartitionsToTxnTopicResult] = wire(Array(AddPartitionsToTxnTopicResult))


@message("0-5", flexible="3+")
class AddPartitionsToTxnResponse(Message):
    throttle_time_ms: int = wire(Int32)
    error_code: int = wire(Int16, "4+", ignorable=True, default=0)
    results_by_transaction: list[AddPartitionsToTxnResult] = wire(Array(AddPartitionsToTxnResult), "4+", factory=list)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = wire(
        Array(AddPartitionsToTxnTopicResult), "0-3", factory=list
    )
