"""Fetch: read record batches, for consumers and followers. Version 7 adds sessions, 12 epochs, 13 topic ids."""

from __future__ import annotations

from typing import Final

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import UUID_ZERO, Array, Int8, Int16, Int32, Int64, RecordData, Records, String, Uuid

# From this version on, requests name topics only by id.
TOPIC_IDS_VERSION: Final = 13
# The isolation level of consumers that skip aborted transactions; ListOffsets has it too.
READ_COMMITTED: Final = 1
# Instead of the id of a fetch session.
NO_SESSION: Final = 0
# The epoch after this one is 1; 0 opens a session.
SESSION_EPOCH_MAX: Final = 2**31 - 1


@struct
class ReplicaState(Message):
    replica_id: int = wire(Int32, default=-1)
    replica_epoch: int = wire(Int64, default=-1)


@struct
class FetchPartition(Message):
    partition: int = wire(Int32)
    current_leader_epoch: int = wire(Int32, "9+", ignorable=True, default=-1)
    fetch_offset: int = wire(Int64)
    last_fetched_epoch: int = wire(Int32, "12+", default=-1)
    log_start_offset: int = wire(Int64, "5+", ignorable=True, default=-1)
    partition_max_bytes: int = wire(Int32)
    replica_directory_id: bytes = wire(Uuid, "17+", tag=0, ignorable=True, default=UUID_ZERO)


@struct
class FetchTopic(Message):
    topic: str = wire(String, "0-12", ignorable=True, default="")
    topic_id: bytes = wire(Uuid, "13+", ignorable=True, default=UUID_ZERO)
    partitions: list[FetchPartition] = wire(Array(FetchPartition))


@struct
class ForgottenTopic(Message):
    topic: str = wire(String, "7-12", ignorable=True, default="")
    topic_id: bytes = wire(Uuid, "13+", ignorable=True, default=UUID_ZERO)
    partitions: list[int] = wire(Array(Int32))


@message("0-17", flexible="12+")
class FetchRequest(Message):
    cluster_id: str | None = wire(String, "12+", nullable="12+", tag=0, ignorable=True, default=None)
    replica_id: int = wire(Int32, "0-14", default=-1)
    replica_state: ReplicaState = wire(ReplicaState, "15+", tag=1, default=ReplicaState())
    max_wait_ms: int = wire(Int32)
    min_bytes: int = wire(Int32)
    max_bytes: int = wire(Int32, "3+", ignorable=True, default=2147483647)
    isolation_level: int = wire(Int8, "4+", ignorable=True, default=0)
    session_id: int = wire(Int32, "7+", ignorable=True, default=0)
    session_epoch: int = wire(Int32, "7+", ignorable=True, default=-1)
    topics: list[FetchTopic] = wire(Array(FetchTopic))
    forgotten_topics_data: list[ForgottenTopic] = wire(Array(ForgottenTopic), "7+", factory=list)
    rack_id: str = wire(String, "11+", ignorable=True, default="")


@struct
class EpochEndOffset(Message):
    epoch: int = wire(Int32, default=-1)
    end_offset: int = wire(Int64, default=-1)


@struct
class LeaderIdAndEpoch(Message):
    leader_id: int = wire(Int32, default=-1)
    leader_epoch: int = wire(Int32, default=-1)


@struct
class SnapshotId(Message):
    end_offset: int = wire(Int64, default=-1)
    epoch: int = wire(Int32, default=-1)


@struct
class AbortedTransaction(Message):
    producer_id: int = wire(Int64)
    first_offset: int = wire(Int64)


@struct
class PartitionData(Message):
    partition_index: int = wire(Int32)
    error_code: int = wire(Int16)
    high_watermark: int = wire(Int64)
    last_stable_offset: int = wire(Int64, "4+", ignorable=True, default=-1)
    log_start_offset: int = wire(Int64, "5+", ignorable=True, default=-1)
    diverging_epoch: EpochEndOffset = wire(EpochEndOffset, "12+", tag=0, default=EpochEndOffset())
    current_leader: LeaderIdAndEpoch = wire(LeaderIdAndEpoch, "12+", tag=1, default=LeaderIdAndEpoch())
    snapshot_id: SnapshotId = wire(SnapshotId, "12+", tag=2, default=SnapshotId())
    aborted_transactions: list[AbortedTransaction] | None = wire(
        Array(AbortedTransaction), "4+", nullable="4+", ignorable=True, factory=list
    )
    preferred_read_replica: int = wire(Int32, "11+", default=-1)
    records: RecordData | None = wire(Records, nullable="0+", default=None)


@struct
class FetchableTopicResponse(Message):
    topic: str = wire(String, "0-12", ignorable=True, default="")
    topic_id: bytes = wire(Uuid, "13+", ignorable=True, default=UUID_ZERO)
    partitions: list[PartitionData] = wire(Array(PartitionData))


@struct
class NodeEndpoint(Message):
    node_id: int = wire(Int32)
    host: str = wire(String)
    port: int = wire(Int32)
    rack: str | None = wire(String, nullable="16+", default=None)


@message("0-17", flexible="12+")
class FetchResponse(Message):
    throttle_time_ms: int = wire(Int32, "1+", ignorable=True, default=0)
    error_code: int = wire(Int16, "7+", ignorable=True, default=0)
    session_id: int = wire(Int32, "7+", default=0)
    responses: list[FetchableTopicResponse] = wire(Array(FetchableTopicResponse))
    node_endpoints: list[NodeEndpoint] = wire(Array(NodeEndpoint), "16+", tag=0, factory=list)
