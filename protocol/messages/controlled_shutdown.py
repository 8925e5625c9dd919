"""ControlledShutdown: a broker asks the controller to move its leaders away before it stops."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Int16, Int32, Int64, String


@message("0-3", flexible="3+")
class ControlledShutdownRequest(Message):
    broker_id: int = wire(Int32)
    broker_epoch: int = wire(Int64, "2+", ignorable=True, default=-1)


@struct
class RemainingPartition(Message):
    topic_name: str = wire(String)
    partition_index: int = wire(Int32)


@message("0-3", flexible="3+")
class ControlledShutdownResponse(Message):
    error_code: int = wire(Int16)
    remaining_partitions: list[RemainingPartition] = wire(Array(RemainingPartition))
