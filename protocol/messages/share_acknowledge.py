"""ShareAcknowledge: acknowledge records of a share group."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Boolean, Int8, Int16, Int32, Int64, String, Uuid


@struct
class AcknowledgementBatch(Message):
    first_offset: int = wire(Int64)
    last_offset: int = wire(Int64)
    acknowledge_types: list[int] = wire(Array(Int8))


@struct
class AcknowledgePartition(Message):
    partition_index: int = wire(Int32)
    acknowledgement_batches: list[AcknowledgementBatch] = wire(Array(AcknowledgementBatch))


@struct
class AcknowledgeTopic(Message):
    topic_id: bytes = wire(Uuid)
    partitions: list[AcknowledgePartition] = wire(Array(AcknowledgePartition))


@message("1-2", flexible="0+")
class ShareAcknowledgeRequest(Message):
    group_id: str | None = wire(String, nullable="0+", default=None)
    member_id: str | None = wire(String, nullable="0+")
    share_session_epoch: int = wire(Int32)
    is_renew_ack: bool = wire(Boolean, "2+", ignorable=True, default=False)
    topics: list[AcknowledgeTopic] = wire(Array(AcknowledgeTopic))


@struct
class LeaderIdAndEpoch(Message):
    leader_id: int = wire(Int32)
    leader_epoch: int = wire(Int32)


@struct
class PartitionData(Message):
    partition_index: int = wire(Int32)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch = wire(LeaderIdAndEpoch)


@struct
class ShareAcknowledgeTopicResponse(Message):
    topic_id: bytes = wire(Uuid)
    partitions: list[PartitionData] = wire(Array(PartitionData))


@struct
class NodeEndpoint(Message):
    node_id: int = wire(Int32)
    host: str = wire(String)
    port: int = wire(Int32)
    rack: str | None = wire(String, nullable="0+", default=None)


@message("1-2", flexible="0+")
class ShareAcknowledgeResponse(Message):
    throttle_time_ms: int = wire(Int32)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = wire(Int32, "2+", ignorable=True, default=0)
    responses: list[ShareAcknowledgeTopicResponse] = wire(Array(ShareAcknowledgeTopicResponse))
    node_endpoints: list[NodeEndpoint] = wire(Array(NodeEndpoint))
