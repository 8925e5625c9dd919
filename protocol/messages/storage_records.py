"""What the log keeps beside its segments: producer snapshots and the index of aborted transactions."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Int16, Int32, Int64, UInt32


@struct
class ProducerEntry(Message):
    producer_id: int = wire(Int64)
    epoch: int = wire(Int16)
    last_sequence: int = wire(Int32)
    last_offset: int = wire(Int64)
    offset_delta: int = wire(Int32)
    timestamp: int = wire(Int64)
    coordinator_epoch: int = wire(Int32)
    current_txn_first_offset: int = wire(Int64)


@message("1")
class ProducerSnapshot(Message):
    crc: int = wire(UInt32)
    producer_entries: list[ProducerEntry] = wire(Array(ProducerEntry))


@message("0")
class AbortedTxn(Message):
    producer_id: int = wire(Int64)
    first_offset: int = wire(Int64)
    last_offset: int = wire(Int64)
    last_stable_offset: int = wire(Int64)
