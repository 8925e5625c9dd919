"""StopReplica: the controller makes a broker stop, and perhaps delete, replicas."""

from __future__ import annotations

from typing import Final

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Boolean, Int16, Int32, Int64, String

# Instead of a leader epoch: the topic is being deleted.
EPOCH_DURING_DELETE: Final = -2


@struct
class StopReplicaPartitionV0(Message):
    topic_name: str = wire(String)
    partition_index: int = wire(Int32)


@struct
class StopReplicaTopicV1(Message):
    name: str = wire(String)
    partition_indexes: list[int] = wire(Array(Int32))


@struct
class StopReplicaPartitionState(Message):
    partition_index: int = wire(Int32)
    leader_epoch: int = wire(Int32, default=-1)
    delete_partition: bool = wire(Boolean)
    # Ours alone: until when the deleted log is kept, because its topic can be brought back; -1 if it is not kept.
    kept_until_ms: int = wire(Int64, "3+", tag=10_000, ignorable=True, default=-1)


@struct
class StopReplicaTopicState(Message):
    topic_name: str = wire(String)
    partition_states: list[StopReplicaPartitionState] = wire(Array(StopReplicaPartitionState))


@message("0-4", flexible="2+")
class StopReplicaRequest(Message):
    controller_id: int = wire(Int32)
    is_kraft_controller: bool = wire(Boolean, "4+", default=False)
    controller_epoch: int = wire(Int32)
    broker_epoch: int = wire(Int64, "1+", ignorable=True, default=-1)
    delete_partitions: bool = wire(Boolean, "0-2", default=False)
    ungrouped_partitions: list[StopReplicaPartitionV0] = wire(Array(StopReplicaPartitionV0), "0", factory=list)
    topics: list[StopReplicaTopicV1] = wire(Array(StopReplicaTopicV1), "1-2", factory=list)
    topic_states: list[StopReplicaTopicState] = wire(Array(StopReplicaTopicState), "3+", factory=list)


@struct
class StopReplicaPartitionError(Message):
    topic_name: str = wire(String)
    partition_index: int = wire(Int32)
    error_code: int = wire(Int16)


@message("0-4", flexible="2+")
class StopReplicaResponse(Message):
    error_code: int = wire(Int16)
    partition_errors: list[StopReplicaPartitionError] = wire(Array(StopReplicaPartitionError))
