"""ElectLeaders: elect preferred or unclean leaders."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Int8, Int16, Int32, String


@struct
class TopicPartitions(Message):
    topic: str = wire(String)
    partitions: list[int] = wire(Array(Int32))


@message("0-2", flexible="2+")
class ElectLeadersRequest(Message):
    election_type: int = wire(Int8, "1+", default=0)
    topic_partitions: list[TopicPartitions] | None = wire(Array(TopicPartitions), nullable="0+")
    timeout_ms: int = wire(Int32, default=60000)


@struct
class PartitionResult(Message):
    partition_id: int = wire(Int32)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, nullable="0+")


@struct
class ReplicaElectionResult(Message):
    topic: str = wire(String)
    partition_result: list[PartitionResult] = wire(Array(PartitionResult))


@message("0-2", flexible="2+")
class ElectLeadersResponse(Message):
    throttle_time_ms: int = wire(Int32)
    error_code: int = wire(Int16, "1+", default=0)
    replica_election_results: list[ReplicaElectionResult] = wire(Array(ReplicaElectionResult))
