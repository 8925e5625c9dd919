"""ShareFetch: acquire records as a member of a share group, and acknowledge earlier ones."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Boolean, Int8, Int16, Int32, Int64, RecordData, Records, String, Uuid


@struct
class AcknowledgementBatch(Message):
    first_offset: int = wire(Int64)
    last_offset: int = wire(Int64)
    acknowledge_types: list[int] = wire(Array(Int8))


@struct
class FetchPartition(Message):
    partition_index: int = wire(Int32)
    acknowledgement_batches: list[AcknowledgementBatch] = wire(Array(AcknowledgementBatch))


@struct
class FetchTopic(Message):
    topic_id: bytes = wire(Uuid)
    partitions: list[FetchPartition] = wire(Array(FetchPartition))


@struct
class ForgottenTopic(Message):
    topic_id: bytes = wire(Uuid)
    partitions: list[int] = wire(Array(Int32))


@message("1-2", flexible="0+")
class ShareFetchRequest(Message):
    group_id: str | None = wire(String, nullable="0+", default=None)
    member_id: str | None = wire(String, nullable="0+")
    share_session_epoch: int = wire(Int32)
    max_wait_ms: int = wire(Int32)
    min_bytes: int = wire(Int32)
    max_bytes: int = wire(Int32, default=2147483647)
    max_records: int = wire(Int32)
    batch_size: int = wire(Int32)
    share_acquire_mode: int = wire(Int8, "2+", ignorable=True, default=0)
    is_renew_ack: bool = wire(Boolean, "2+", ignorable=True, default=False)
    topics: list[FetchTopic] = wire(Array(FetchTopic))
    forgotten_topics_data: list[ForgottenTopic] = wire(Array(ForgottenTopic))


@struct
class LeaderIdAndEpoch(Message):
    leader_id: int = wire(Int32)
    leader_epoch: int = wire(Int32)


@struct
class AcquiredRecords(Message):
    first_offset: int = wire(Int64)
    last_offset: int = wire(Int64)
    delivery_count: int = wire(Int16)


@struct
class PartitionData(Message):
    partition_index: int = wire(Int32)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, nullable="0+", default=None)
    acknowledge_error_code: int = wire(Int16)
    acknowledge_error_message: str | None = wire(String, nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch = wire(LeaderIdAndEpoch)
    records: RecordData = wire(Records)
    acquired_records: list[AcquiredRecords] = wire(Array(AcquiredRecords))


@struct
class ShareFetchableTopicResponse(Message):
    topic_id: bytes = wire(Uuid)
    partitions: list[PartitionData] = wire(Array(PartitionData))


@struct
class NodeEndpoint(Message):
    node_id: int = wire(Int32)
    host: str = wire(String)
    port: int = wire(Int32)
    rack: str | None = wire(String, nullable="0+", default=None)


@message("1-2", flexible="0+")
class ShareFetchResponse(Message):
    throttle_time_ms: int = wire(Int32)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = wire(Int32)
    responses: list[ShareFetchableTopicResponse] = wire(Array(ShareFetchableTopicResponse))
    node_endpoints: list[NodeEndpoint] = wire(Array(NodeEndpoint))
