"""Messages as plain values for JSON, for people who inspect the wire."""

from __future__ import annotations

from typing import Any

from ottla.protocol.errors import ProtocolError
from ottla.protocol.message import Message
from ottla.protocol.primitives import Array, Bytes, Records, Uuid, WireType, uuid_to_text
from ottla.protocol.records import RecordBatch, batches


def viewed(message: Message, version: int) -> dict[str, Any]:
    """Return the fields of a message in one version: ids as Kafka writes them, bytes as hex, records as batches."""
    return {
        field.name: _value(field.type, getattr(message, field.name), version)
        for field in message.wire_fields
        if version in field.versions
    }


def _value(wire_type: Any, value: Any, version: int) -> Any:
    if value is None:
        return None
    if isinstance(wire_type, Array):
        return [_value(wire_type.item, item, version) for item in value]
    if not isinstance(wire_type, WireType):
        return viewed(value, version)
    if wire_type is Uuid:
        return uuid_to_text(value)
    if wire_type is Bytes:
        return value.hex()
    return _records(value) if wire_type is Records else value


def _records(data: memoryview) -> Any:
    """Return the batches; data that is not in batches of magic 2 is returned as hex."""
    try:
        return [_batch(batch) for batch in batches(data, strict=True)]
    except ProtocolError as error:
        return {"error": str(error), "hex": data.hex()}


def _batch(batch: RecordBatch) -> dict[str, Any]:
    return {
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "partition_leader_epoch": batch.partition_leader_epoch,
        "codec": batch.codec.config_name,
        "timestamp_type": batch.timestamp_type.name,
        "transactional": batch.is_transactional,
        "control": batch.is_control,
        "base_timestamp": batch.base_timestamp,
        "max_timestamp": batch.max_timestamp,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "records": [
            {
                "offset": record.offset,
                "timestamp": record.timestamp,
                "key": _text(record.key),
                "value": _text(record.value),
                "headers": [[name, _text(value)] for name, value in record.headers],
            }
            for record in batch.records()
        ],
    }


def _text(data: bytes | None) -> Any:
    """Return text if the bytes are text, otherwise an object with the hex."""
    if data is None:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return {"hex": data.hex()}
    return text if text.isprintable() else {"hex": data.hex()}
