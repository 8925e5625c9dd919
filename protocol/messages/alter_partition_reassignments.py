"""AlterPartitionReassignments: begin or cancel moving partitions to other brokers."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Int16, Int32, Int64, String


@struct
class ReassignablePartition(Message):
    partition_index: int = wire(Int32)
    replicas: list[int] | None = wire(Array(Int32), nullable="0+", default=None)


@struct
class ReassignableTopic(Message):
    name: str = wire(String)
    partitions: list[ReassignablePartition] = wire(Array(ReassignablePartition))


@message("0", flexible="0+")
class AlterPartitionReassignmentsRequest(Message):
    timeout_ms: int = wire(Int32, default=60000)
    topics: list[ReassignableTopic] = wire(Array(ReassignableTopic))
    # Ours alone: Kafka's brokers ignore them and start all moves at once. How many moves may copy from or to one broker
    # at a time, 0 for all; and how fast, in bytes per second for each broker, 0 for no limit.
    moves_per_broker: int = wire(Int32, tag=10_000, ignorable=True, default=0)
    bytes_per_second: int = wire(Int64, tag=10_001, ignorable=True, default=0)


@struct
class ReassignablePartitionResponse(Message):
    partition_index: int = wire(Int32)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, nullable="0+")


@struct
class ReassignableTopicResponse(Message):
    name: str = wire(String)
    partitions: list[ReassignablePartitionResponse] = wire(Array(ReassignablePartitionResponse))


@message("0", flexible="0+")
class AlterPartitionReassignmentsResponse(Message):
    throttle_time_ms: int = wire(Int32)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, nullable="0+")
    responses: list[ReassignableTopicResponse] = wire(Array(ReassignableTopicResponse))
