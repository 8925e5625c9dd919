"""Control batches: the markers that end a transaction on a partition.

One record:  key = int16 version 0, int16 type; value = int16 version 0, int32 coordinator epoch. Later versions may
append fields, so readers accept a longer key or value.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from ottla.protocol.errors import CorruptBatchError
from ottla.protocol.record_batch_builder import RecordBatchBuilder
from ottla.protocol.records import NO_LEADER_EPOCH, RecordBatch

_KEY: Final = Struct(">hh")
_VALUE: Final = Struct(">hi")
_VERSION: Final = 0

# Far above the size of any real marker. Nobody writes compressed control batches, so a small limit is enough.
_CONTROL_RECORDS_BYTES_MAX: Final = 64 * 1024


class ControlType(IntEnum):
    """How a transaction ended."""

    ABORT = 0
    COMMIT = 1


class EndTransactionMarker(NamedTuple):
    """The content of a marker. A coordinator epoch older than one already seen is from a fenced coordinator."""

    control_type: ControlType
    coordinator_epoch: int


def build_marker_batch(
    marker: EndTransactionMarker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    partition_leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    """Return the marker batch that a transaction coordinator appends to each partition of a transaction."""
    builder = RecordBatchBuilder()
    builder.append(timestamp, _KEY.pack(_VERSION, marker.control_type), _VALUE.pack(_VERSION, marker.coordinator_epoch))
    return builder.build(
        base_offset=base_offset,
        partition_leader_epoch=partition_leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def read_marker(batch: RecordBatch) -> EndTransactionMarker | None:
    """Return the marker in a control batch; None if the batch was emptied, or does not end a transaction."""
    if not batch.is_control:
        raise CorruptBatchError("a data batch where a control batch is expected")
    record = next(batch.records(_CONTROL_RECORDS_BYTES_MAX), None)
    if record is None:
        return None
    key, value = record.key, record.value
    if key is None or len(key) < _KEY.size:
        raise CorruptBatchError("the key of a control record is cut short")
    version, control_type = _KEY.unpack_from(key)
    if version < _VERSION:
        raise CorruptBatchError(f"version {version} of a control record")
    if control_type not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if value is None or len(value) < _VALUE.size:
        raise CorruptBatchError("the value of an end transaction marker is cut short")
    version, coordinator_epoch = _VALUE.unpack_from(value)
    if version < _VERSION:
        raise CorruptBatchError(f"version {version} of an end transaction marker")
    return EndTransactionMarker(ControlType(control_type), coordinator_epoch)
