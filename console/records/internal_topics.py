"""Records of Kafka's internal topics, which have formats of their own: an int16 version, then fields."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ottla.protocol.codec import decode_from
from ottla.protocol.errors import DecodeError
from ottla.protocol.message import Message
from ottla.protocol.messages import consumer_group_records as consumer_groups
from ottla.protocol.messages import offset_records as offsets
from ottla.protocol.messages import transaction_records as transactions

_VERSION_BYTES: Final = 2
_Kinds = Mapping[int, tuple[type[Message], type[Message]]]
_OFFSETS: Final[_Kinds] = {
    0: (offsets.OffsetCommitKey, offsets.OffsetCommitValue),
    1: (offsets.OffsetCommitKey, offsets.OffsetCommitValue),
    2: (offsets.GroupMetadataKey, offsets.GroupMetadataValue),
    3: (consumer_groups.ConsumerGroupMetadataKey, consumer_groups.ConsumerGroupMetadataValue),
    4: (consumer_groups.ConsumerGroupPartitionMetadataKey, consumer_groups.ConsumerGroupPartitionMetadataValue),
    5: (consumer_groups.ConsumerGroupMemberMetadataKey, consumer_groups.ConsumerGroupMemberMetadataValue),
    6: (
        consumer_groups.ConsumerGroupTargetAssignmentMetadataKey,
        consumer_groups.ConsumerGroupTargetAssignmentMetadataValue,
    ),
    7: (
        consumer_groups.ConsumerGroupTargetAssignmentMemberKey,
        consumer_groups.ConsumerGroupTargetAssignmentMemberValue,
    ),
    8: (
        consumer_groups.ConsumerGroupCurrentMemberAssignmentKey,
        consumer_groups.ConsumerGroupCurrentMemberAssignmentValue,
    ),
}
_TRANSACTIONS: Final[_Kinds] = {0: (transactions.TransactionLogKey, transactions.TransactionLogValue)}
_TOPICS: Final[Mapping[str, _Kinds]] = {"__consumer_offsets": _OFFSETS, "__transaction_state": _TRANSACTIONS}


def internal_record(topic: str, key: bytes | None, value: bytes | None) -> tuple[str, str | None] | None:
    """Return key and value as JSON; None if the topic is not internal, or the record is of an unknown kind."""
    kinds = _TOPICS.get(topic)
    if kinds is None or key is None or len(key) < _VERSION_BYTES:
        return None
    kind = int.from_bytes(key[:_VERSION_BYTES], "big", signed=True)
    if kind not in kinds:
        return None
    key_type, value_type = kinds[kind]
    try:
        shown_key = _json(key_type, kind, key)
        if value is None:
            return shown_key, None
        if len(value) < _VERSION_BYTES:
            return None
        return shown_key, _json(value_type, int.from_bytes(value[:_VERSION_BYTES], "big", signed=True), value)
    except DecodeError:
        return None


def _json(kind: type[Message], version: int, data: bytes) -> str:
    message, _ = decode_from(kind, version, data, _VERSION_BYTES)
    return msgspec.json.encode({"kind": kind.__name__, **_plain(message)}).decode()


def _plain(value: Any) -> Any:
    if isinstance(value, Message):
        return {field.name: _plain(getattr(value, field.name)) for field in value.wire_fields}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    return value
