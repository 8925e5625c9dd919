"""AlterPartition: a leader asks the controller to change the ISR. Version 2 names topics by id."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import UUID_ZERO, Array, Int8, Int16, Int32, Int64, String, Uuid


@struct
class BrokerState(Message):
    broker_id: int = wire(Int32)
    broker_epoch: int = wire(Int64, default=-1)


@struct
class RequestPartitionData(Message):
    partition_index: int = wire(Int32)
    leader_epoch: int = wire(Int32)
    new_isr: list[int] = wire(Array(Int32), "0-2", factory=list)
    new_isr_with_epochs: list[BrokerState] = wire(Array(BrokerState), "3+", factory=list)
    leader_recovery_state: int = wire(Int8, "1+", default=0)
    partition_epoch: int = wire(Int32)


@struct
class RequestTopicData(Message):
    topic_name: str = wire(String, "0-1", ignorable=True, default="")
    topic_id: bytes = wire(Uuid, "2+", ignorable=True, default=UUID_ZERO)
    partitions: list[RequestPartitionData] = wire(Array(RequestPartitionData))


@message("0-3", flexible="0+")
class AlterPartitionRequest(Message):
    broker_id: int = wire(Int32)
    broker_epoch: int = wire(Int64, default=-1)
    topics: list[RequestTopicData] = wire(Array(RequestTopicData))


@struct
class ResponsePartitionData(Message):
    partition_index: int = wire(Int32)
    error_code: int = wire(Int16)
    leader_id: int = wire(Int32)
    leader_epoch: int = wire(Int32)
    isr: list[int] = wire(Array(Int32))
    leader_recovery_state: int = wire(Int8, "1+", ignorable=True, default=0)
    partition_epoch: int = wire(Int32)


@struct
class ResponseTopicData(Message):
    topic_name: str = wire(String, "0-1", ignorable=True, default="")
    topic_id: bytes = wire(Uuid, "2+", ignorable=True, default=UUID_ZERO)
    partitions: list[ResponsePartitionData] = wire(Array(ResponsePartitionData))


@message("0-3", flexible="0+")
class AlterPartitionResponse(Message):
    throttle_time_ms: int = wire(Int32)
    error_code: int = wire(Int16)
    topics: list[ResponseTopicData] = wire(Array(ResponseTopicData))
