"""LeaderAndIsr: the controller tells a broker which partitions it leads and follows. Version 2 groups by topic."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import UUID_ZERO, Array, Boolean, Int8, Int16, Int32, Int64, String, Uuid


@struct
class LeaderAndIsrPartitionState(Message):
    topic_name: str = wire(String, "0-1", ignorable=True, default="")
    partition_index: int = wire(Int32)
    controller_epoch: int = wire(Int32)
    leader: int = wire(Int32)
    leader_epoch: int = wire(Int32)
    isr: list[int] = wire(Array(Int32))
    partition_epoch: int = wire(Int32)
    replicas: list[int] = wire(Array(Int32))
    adding_replicas: list[int] = wire(Array(Int32), "3+", ignorable=True, factory=list)
    removing_replicas: list[int] = wire(Array(Int32), "3+", ignorable=True, factory=list)
    is_new: bool = wire(Boolean, "1+", ignorable=True, default=False)
    leader_recovery_state: int = wire(Int8, "6+", default=0)


@struct
class LeaderAndIsrTopicState(Message):
    topic_name: str = wire(String)
    topic_id: bytes = wire(Uuid, "5+", ignorable=True, default=UUID_ZERO)
    partition_states: list[LeaderAndIsrPartitionState] = wire(Array(LeaderAndIsrPartitionState))


@struct
class LeaderAndIsrLiveLeader(Message):
    broker_id: int = wire(Int32)
    host_name: str = wire(String)
    port: int = wire(Int32)


@message("0-7", flexible="4+")
class LeaderAndIsrRequest(Message):
    controller_id: int = wire(Int32)
    is_kraft_controller: bool = wire(Boolean, "7+", default=False)
    controller_epoch: int = wire(Int32)
    broker_epoch: int = wire(Int64, "2+", ignorable=True, default=-1)
    type: int = wire(Int8, "5+", default=0)
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = wire(
        Array(LeaderAndIsrPartitionState), "0-1", factory=list
    )
    topic_states: list[LeaderAndIsrTopicState] = wire(Array(LeaderAndIsrTopicState), "2+", factory=list)
    live_leaders: list[LeaderAndIsrLiveLeader] = wire(Array(LeaderAndIsrLiveLeader))


@struct
class LeaderAndIsrPartitionError(Message):
    topic_name: str = wire(String, "0-4", ignorable=True, default="")
    partition_index: int = wire(Int32)
    error_code: int = wire(Int16)


@struct
class LeaderAndIsrTopicError(Message):
    topic_id: bytes = wire(Uuid)
    partition_errors: list[LeaderAndIsrPartitionError] = wire(Array(LeaderAndIsrPartitionError))


@message("0-7", flexible="4+")
class LeaderAndIsrResponse(Message):
    error_code: int = wire(Int16)
    partition_errors: list[LeaderAndIsrPartitionError] = wire(Array(LeaderAndIsrPartitionError), "0-4", factory=list)
    topics: list[LeaderAndIsrTopicError] = wire(Array(LeaderAndIsrTopicError), "5+", factory=list)
