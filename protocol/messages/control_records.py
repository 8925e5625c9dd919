"""Control records in a partition's log: an int16 version, then these fields."""

from __future__ import annotations

from ottla.protocol.message import Message, message, wire
from ottla.protocol.primitives import Int16, Int32


@message("0")
class ControlRecordType(Message):
    type: int = wire(Int16)


@message("0")
class EndTxnMarker(Message):
    coordinator_epoch: int = wire(Int32)
