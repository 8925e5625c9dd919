"""The records of `__consumer_offsets`: how they are written and read.

    key    int16 version, then the fields. Version 0 and 1: an offset (group, topic, partition). Version 2: a classic
           group. Version 3 to 8: parts of a consumer group. The first field is always the group id
    value  int16 version, then the fields of that version; null is a tombstone

Offsets are written in version 3, or in version 1 if the client sets an expiry time. Groups are written in version 3.
All versions can be read. Loading may decode millions of offsets, so keys and common values have hand-written decoders.
"""

from __future__ import annotations

import struct
from typing import Final

from ottla.broker.coordination.stored_records import StoredRecord
from ottla.broker.groups.classic.messages import GroupSnapshot, MemberSnapshot
from ottla.broker.groups.offsets.offset_store import CommittedOffset
from ottla.protocol.codec import decode_from, encode
from ottla.protocol.errors import CorruptBatchError, DecodeError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.offset_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.protocol.records import NO_TIMESTAMP

OFFSET_KEY_VERSION: Final = 1
GROUP_KEY_VERSION: Final = 2

_OFFSET_VALUE_VERSION: Final = 3
_OFFSET_VALUE_VERSION_WITH_EXPIRY: Final = 1
_GROUP_VALUE_VERSION: Final = 3
# Later versions only add tagged fields to this one.
_VALUE_VERSION_MAX: Final = 4

_VERSION: Final = struct.Struct(">h")
_OFFSET_KEY_PREFIX: Final = _VERSION.pack(OFFSET_KEY_VERSION)
_PARTITION: Final = struct.Struct(">i")
# Version, offset, leader epoch, length of the metadata. The metadata and the commit timestamp follow.
_VALUE_START: Final = struct.Struct(">hqih")
_TIMESTAMP: Final = struct.Struct(">q")
# A whole value with empty metadata, which is the common case.
_BARE_VALUE: Final = struct.Struct(">hqihq")


# Offsets


def offset_key(group_id: str, partition: TopicPartition) -> bytes:
    """Return the key of an offset."""
    fields = OffsetCommitKey(group=group_id, topic=partition.topic, partition=partition.partition)
    return _OFFSET_KEY_PREFIX + encode(fields, OFFSET_KEY_VERSION)


def offset_value(committed: CommittedOffset) -> bytes:
    """Return the value of an offset."""
    has_expiry = committed.expire_timestamp_ms != NO_TIMESTAMP
    version = _OFFSET_VALUE_VERSION_WITH_EXPIRY if has_expiry else _OFFSET_VALUE_VERSION
    fields = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=committed.expire_timestamp_ms,
    )
    return _VERSION.pack(version) + encode(fields, version)


def offset_record(group_id: str, partition: TopicPartition, committed: CommittedOffset | None) -> StoredRecord:
    """Return the record that stores an offset, or deletes it if `committed` is None."""
    return StoredRecord(offset_key(group_id, partition), None if committed is None else offset_value(committed))


def read_offset_key(key: bytes) -> tuple[bytes, bytes, int]:
    """Return group, topic and partition of an offset's key. The names stay encoded."""
    topic_position = 4 + (key[2] << 8 | key[3])
    topic_end = topic_position + 2 + (key[topic_position] << 8 | key[topic_position + 1])
    if topic_end + 4 != len(key):
        raise CorruptBatchError("the key of an offset has a wrong length")
    return key[4:topic_position], key[topic_position + 2 : topic_end], _PARTITION.unpack_from(key, topic_end)[0]


def read_offset_value(value: bytes, log_offset: int) -> CommittedOffset:
    """Decode the value of an offset from a batch at `log_offset`."""
    if len(value) == _BARE_VALUE.size and value[:2] == b"\x00\x03":
        _, offset, leader_epoch, size, timestamp_ms = _BARE_VALUE.unpack(value)
        if size == 0:
            bare = (offset, leader_epoch, "", timestamp_ms, NO_TIMESTAMP, log_offset, NO_TIMESTAMP)
            return tuple.__new__(CommittedOffset, bare)
    if value[:2] == b"\x00\x03":
        _, offset, leader_epoch, size = _VALUE_START.unpack_from(value)
        end = _VALUE_START.size + size
        if end + _TIMESTAMP.size == len(value):
            metadata = value[_VALUE_START.size : end].decode() if size else ""
            timestamp_ms = _TIMESTAMP.unpack_from(value, end)[0]
            fields = (offset, leader_epoch, metadata, timestamp_ms, NO_TIMESTAMP, log_offset, NO_TIMESTAMP)
            return tuple.__new__(CommittedOffset, fields)
    version = _value_version(value)
    stored, _ = decode_from(OffsetCommitValue, version, value, _VERSION.size)
    return CommittedOffset(
        stored.offset,
        stored.leader_epoch,
        stored.metadata,
        stored.commit_timestamp,
        stored.expire_timestamp,
        log_offset,
    )


# Classic groups


def group_key(group_id: str) -> bytes:
    """Return the key of a group."""
    return _VERSION.pack(GROUP_KEY_VERSION) + encode(GroupMetadataKey(group=group_id), GROUP_KEY_VERSION)


def group_record(snapshot: GroupSnapshot) -> StoredRecord:
    """Return the record that stores a group."""
    fields = GroupMetadataValue(
        protocol_type=snapshot.protocol_type,
        generation=snapshot.generation,
        protocol=snapshot.protocol_name,
        leader=snapshot.leader_id,
        current_state_timestamp=snapshot.state_timestamp_ms,
        members=[
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.subscription,
                assignment=member.assignment,
            )
            for member in snapshot.members
        ],
    )
    value = _VERSION.pack(_GROUP_VALUE_VERSION) + encode(fields, _GROUP_VALUE_VERSION)
    return StoredRecord(group_key(snapshot.group_id), value)


def group_tombstone(group_id: str) -> StoredRecord:
    """Return the record that deletes a group."""
    return StoredRecord(group_key(group_id), None)


def read_group_id(key: bytes) -> str:
    """Return the group id of a key of any version."""
    end = 4 + (key[2] << 8 | key[3])
    if end > len(key):
        raise CorruptBatchError("the key of a group is too short")
    return key[4:end].decode()


def read_group_value(group_id: str, value: bytes) -> GroupSnapshot:
    """Decode the value of a group. Version 0 has no rebalance timeout, so the session timeout is used."""
    stored, _ = decode_from(GroupMetadataValue, _value_version(value), value, _VERSION.size)
    members = tuple(
        MemberSnapshot(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            member.session_timeout if member.rebalance_timeout < 0 else member.rebalance_timeout,
            member.session_timeout,
            member.subscription,
            member.assignment,
        )
        for member in stored.members
    )
    return GroupSnapshot(
        group_id,
        stored.protocol_type,
        stored.generation,
        stored.protocol,
        stored.leader,
        stored.current_state_timestamp,
        members,
    )


# Batches


def key_version(key: bytes) -> int:
    """Return the version of a key; -1 if the key is too short."""
    return int(_VERSION.unpack_from(key)[0]) if len(key) >= _VERSION.size else -1


def _value_version(value: bytes) -> int:
    if len(value) < _VERSION.size:
        raise DecodeError(f"a value of {len(value)} bytes has no version")
    return min(int(_VERSION.unpack_from(value)[0]), _VALUE_VERSION_MAX)
