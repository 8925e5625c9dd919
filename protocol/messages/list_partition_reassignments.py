"""ListPartitionReassignments: reassignments in progress."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Int16, Int32, String


@struct
class ListPartitionReassignmentsTopics(Message):
    name: str = wire(String)
    partition_indexes: list[int] = wire(Array(Int32))


@message("0", flexible="0+")
class ListPartitionReassignmentsRequest(Message):
    timeout_ms: int = wire(Int32, default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = wire(
        Array(ListPartitionReassignmentsTopics), nullable="0+", default=None
    )


@struct
class OngoingPartitionReassignment(Message):
    partition_index: int = wire(Int32)
    replicas: list[int] = wire(Array(Int32))
    adding_replicas: list[int] = wire(Array(Int32))
    removing_replicas: list[int] = wire(Array(Int32))


@struct
class OngoingTopicReassignment(Message):
    name: str = wire(String)
    partitions: list[OngoingPartitionReassignment] = wire(Array(OngoingPartitionReassignment))


@message("0", flexible="0+")
class ListPartitionReassignmentsResponse(Message):
    throttle_time_ms: int = wire(Int32)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, nullable="0+")
    topics: list[OngoingTopicReassignment] = wire(Array(OngoingTopicReassignment))
