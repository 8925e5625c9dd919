"""WriteTxnMarkers: the coordinator has partition leaders write commit and abort markers."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Boolean, Int16, Int32, Int64, String


@struct
class WritableTxnMarkerTopic(Message):
    name: str = wire(String)
    partition_indexes: list[int] = wire(Array(Int32))


@struct
class WritableTxnMarker(Message):
    producer_id: int = wire(Int64)
    producer_epoch: int = wire(Int16)
    transaction_result: bool = wire(Boolean)
    topics: list[WritableTxnMarkerTopic] = wire(Array(WritableTxnMarkerTopic))
    coordinator_epoch: int = wire(Int32)
    # Ours alone: Kafka's brokers neither send nor read them. The first counts the transactions that a coordinator has
    # ended since its broker has started; the second is its broker epoch, which is higher after each start.
    transaction_number: int = wire(Int64, "1+", tag=10_000, ignorable=True, default=-1)
    coordinator_broker_epoch: int = wire(Int64, "1+", tag=10_001, ignorable=True, default=-1)


@message("0-1", flexible="1+")
class WriteTxnMarkersRequest(Message):
    markers: list[WritableTxnMarker] = wire(Array(WritableTxnMarker))


@struct
class WritableTxnMarkerPartitionResult(Message):
    partition_index: int = wire(Int32)
    error_code: int = wire(Int16)


@struct
class WritableTxnMarkerTopicResult(Message):
    name: str = wire(String)
    partitions: list[WritableTxnMarkerPartitionResult] = wire(Array(WritableTxnMarkerPartitionResult))


@struct
class WritableTxnMarkerResult(Message):
    producer_id: int = wire(Int64)
    topics: list[WritableTxnMarkerTopicResult] = wire(Array(WritableTxnMarkerTopicResult))


@message("0-1", flexible="1+")
class WriteTxnMarkersResponse(Message):
    markers: list[WritableTxnMarkerResult] = wire(Array(WritableTxnMarkerResult))
