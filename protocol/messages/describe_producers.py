"""DescribeProducers: the active producers of partitions."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Int16, Int32, Int64, String


@struct
class TopicRequest(Message):
    name: str = wire(String)
    partition_indexes: list[int] = wire(Array(Int32))


@message("0", flexible="0+")
class DescribeProducersRequest(Message):
    topics: list[TopicRequest] = wire(Array(TopicRequest))


@struct
class ProducerState(Message):
    producer_id: int = wire(Int64)
    producer_epoch: int = wire(Int32)
    last_sequence: int = wire(Int32, default=-1)
    last_timestamp: int = wire(Int64, default=-1)
    coordinator_epoch: int = wire(Int32)
    current_txn_start_offset: int = wire(Int64, default=-1)


@struct
class PartitionResponse(Message):
    partition_index: int = wire(Int32)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, nullable="0+", default=None)
    active_producers: list[ProducerState] = wire(Array(ProducerState))


@struct
class TopicResponse(Message):
    name: str = wire(String)
    partitions: list[PartitionResponse] = wire(Array(PartitionResponse))


@message("0", flexible="0+")
class DescribeProducersResponse(Message):
    throttle_time_ms: int = wire(Int32)
    topics: list[TopicResponse] = wire(Array(TopicResponse))
