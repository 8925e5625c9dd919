"""Produce: append record batches to partitions. Batches are of magic 2 from version 3; 10 adds leader hints."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Int16, Int32, Int64, RecordData, Records, String


@struct
class PartitionProduceData(Message):
    index: int = wire(Int32)
    records: RecordData | None = wire(Records, nullable="0+", default=None)


@struct
class TopicProduceData(Message):
    name: str = wire(String)
    partition_data: list[PartitionProduceData] = wire(Array(PartitionProduceData))


@message("0-11", flexible="9+")
class ProduceRequest(Message):
    transactional_id: str | None = wire(String, "3+", nullable="3+", default=None)
    acks: int = wire(Int16)
    timeout_ms: int = wire(Int32)
    topic_data: list[TopicProduceData] = wire(Array(TopicProduceData))


@struct
class BatchIndexAndErrorMessage(Message):
    batch_index: int = wire(Int32)
    batch_index_error_message: str | None = wire(String, nullable="8+", default=None)


@struct
class LeaderIdAndEpoch(Message):
    leader_id: int = wire(Int32, default=-1)
    leader_epoch: int = wire(Int32, default=-1)


@struct
class PartitionProduceResponse(Message):
    index: int = wire(Int32)
    error_code: int = wire(Int16)
    base_offset: int = wire(Int64)
    log_append_time_ms: int = wire(Int64, "2+", ignorable=True, default=-1)
    log_start_offset: int = wire(Int64, "5+", ignorable=True, default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = wire(
        Array(BatchIndexAndErrorMessage), "8+", ignorable=True, factory=list
    )
    error_message: str | None = wire(String, "8+", nullable="8+", ignorable=True, default=None)
    current_leader: LeaderIdAndEpoch = wire(LeaderIdAndEpoch, "10+", tag=0, default=LeaderIdAndEpoch())


@struct
class TopicProduceResponse(Message):
    name: str = wire(String)
    partition_responses: list[PartitionProduceResponse] = wire(Array(PartitionProduceResponse))


@struct
class NodeEndpoint(Message):
    node_id: int = wire(Int32)
    host: str = wire(String)
    port: int = wire(Int32)
    rack: str | None = wire(String, nullable="10+", default=None)


@message("0-11", flexible="9+")
class ProduceResponse(Message):
    responses: list[TopicProduceResponse] = wire(Array(TopicProduceResponse))
    throttle_time_ms: int = wire(Int32, "1+", ignorable=True, default=0)
    node_endpoints: list[NodeEndpoint] = wire(Array(NodeEndpoint), "10+", tag=0, factory=list)
