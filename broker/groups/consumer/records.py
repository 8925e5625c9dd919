"""The records of consumer groups in `__consumer_offsets`: how they are written and read.

    key version   of           value
    3             the group    the group epoch
    4             the group    the subscribed topics, with their numbers of partitions
    5             a member     the client, and its subscription
    6             the group    the epoch of the target assignment
    7             a member     the partitions of its target assignment
    8             a member     its epoch, its assigned partitions, and those that it must revoke

Keys and values begin with an int16, their version. A null value deletes the record.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from ottla.broker.coordination.stored_records import StoredRecord
from ottla.broker.groups.consumer.assignors import PartitionSet, TopicIdPartition
from ottla.broker.groups.consumer.member import ConsumerMember
from ottla.broker.groups.consumer.messages import MemberState, TopicShape
from ottla.protocol.codec import decode_from, encode
from ottla.protocol.errors import DecodeError
from ottla.protocol.message import Message
from ottla.protocol.messages.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicMetadata,
    TopicPartitions,
)

_VERSION: Final = struct.Struct(">h")
_VALUE_VERSION: Final = 0


class RecordKind(IntEnum):
    """The kinds of records. The values are the versions of the keys."""

    GROUP = 3
    TOPICS = 4
    MEMBER = 5
    TARGET_EPOCH = 6
    TARGET = 7
    CURRENT = 8


_MEMBER_KEYS: Final = {
    RecordKind.MEMBER: ConsumerGroupMemberMetadataKey,
    RecordKind.TARGET: ConsumerGroupTargetAssignmentMemberKey,
    RecordKind.CURRENT: ConsumerGroupCurrentMemberAssignmentKey,
}
_GROUP_KEYS: Final = {
    RecordKind.GROUP: ConsumerGroupMetadataKey,
    RecordKind.TOPICS: ConsumerGroupPartitionMetadataKey,
    RecordKind.TARGET_EPOCH: ConsumerGroupTargetAssignmentMetadataKey,
}
_KINDS: Final = frozenset(RecordKind)
GROUP_KINDS: Final = tuple(_GROUP_KEYS)
MEMBER_KINDS: Final = tuple(_MEMBER_KEYS)


class StoredConsumerGroup(Struct):
    """The state of a group that its records hold."""

    group_id: str
    epoch: int = 0
    topics: dict[str, TopicShape] = field(default_factory=dict)
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    assignment_epoch: int = 0
    targets: dict[str, PartitionSet] = field(default_factory=dict)

    def value(self, kind: RecordKind, member_id: str) -> Message | None:
        """Return the value of a record; None if the record should be deleted."""
        if kind is RecordKind.GROUP:
            return ConsumerGroupMetadataValue(epoch=self.epoch)
        if kind is RecordKind.TOPICS:
            return _topics_value(self.topics)
        if kind is RecordKind.TARGET_EPOCH:
            return ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=self.assignment_epoch)
        member = self.members.get(member_id)
        if member is None:
            return None
        if kind is RecordKind.MEMBER:
            return _member_value(member)
        if kind is RecordKind.TARGET:
            target = self.targets.get(member_id)
            return None if target is None else _target_value(target)
        return _current_value(member)


def record_of(stored: StoredConsumerGroup, kind: RecordKind, member_id: str = "") -> StoredRecord:
    """Return the record of one kind with the current state of the group."""
    value = stored.value(kind, member_id)
    encoded = None if value is None else _VERSION.pack(_VALUE_VERSION) + encode(value, _VALUE_VERSION)
    return StoredRecord(_key(stored.group_id, kind, member_id), encoded)


def tombstone_of(group_id: str, kind: RecordKind, member_id: str = "") -> StoredRecord:
    """Return the record that deletes the record of one kind."""
    return StoredRecord(_key(group_id, kind, member_id), None)


def read_group(group_id: str, records: Iterable[StoredRecord]) -> StoredConsumerGroup | None:
    """Restore a group from its newest records, in any order; None if it was deleted. DecodeError if one is invalid."""
    values: dict[RecordKind, dict[str, Message]] = defaultdict(dict)
    for record in records:
        version = _VERSION.unpack_from(record.key)[0]
        # Later versions of Kafka may have more kinds of records. They stay in the log.
        if record.value is None or version not in _KINDS:
            continue
        kind = RecordKind(version)
        values[kind][_member_id(kind, record.key)] = _read_value(kind, record.value)
    if RecordKind.GROUP not in values:
        return None
    return _assembled(group_id, values)


def _key(group_id: str, kind: RecordKind, member_id: str) -> bytes:
    group_key = _GROUP_KEYS.get(kind)
    if group_key is not None:
        return _VERSION.pack(kind) + encode(group_key(group_id=group_id), kind)
    return _VERSION.pack(kind) + encode(_MEMBER_KEYS[kind](group_id=group_id, member_id=member_id), kind)


def _member_id(kind: RecordKind, key: bytes) -> str:
    declared = _MEMBER_KEYS.get(kind)
    if declared is None:
        return ""
    found: Any = decode_from(declared, kind, key, _VERSION.size)[0]
    return str(found.member_id)


_VALUES: Final[Mapping[RecordKind, type[Message]]] = {
    RecordKind.GROUP: ConsumerGroupMetadataValue,
    RecordKind.TOPICS: ConsumerGroupPartitionMetadataValue,
    RecordKind.MEMBER: ConsumerGroupMemberMetadataValue,
    RecordKind.TARGET_EPOCH: ConsumerGroupTargetAssignmentMetadataValue,
    RecordKind.TARGET: ConsumerGroupTargetAssignmentMemberValue,
    RecordKind.CURRENT: ConsumerGroupCurrentMemberAssignmentValue,
}


def _read_value(kind: RecordKind, value: bytes) -> Message:
    if len(value) < _VERSION.size:
        raise DecodeError("the value of a group record is too short")
    # Later versions of a flexible message only add tagged fields.
    found, _ = decode_from(_VALUES[kind], _VALUE_VERSION, value, _VERSION.size)
    return found


def _assembled(group_id: str, values: Mapping[RecordKind, Mapping[str, Message]]) -> StoredConsumerGroup:
    stored = StoredConsumerGroup(group_id)
    for kind, by_member in values.items():
        for member_id, value in by_member.items():
            if isinstance(value, ConsumerGroupMetadataValue):
                stored.epoch = value.epoch
            elif isinstance(value, ConsumerGroupPartitionMetadataValue):
                stored.topics = {
                    each.topic_name: TopicShape(each.topic_id, each.num_partitions) for each in value.topics
                }
            elif isinstance(value, ConsumerGroupTargetAssignmentMetadataValue):
                stored.assignment_epoch = value.assignment_epoch
            elif isinstance(value, ConsumerGroupMemberMetadataValue):
                current = values.get(RecordKind.CURRENT, {}).get(member_id)
                stored.members[member_id] = _member(member_id, value, current)
            elif isinstance(value, ConsumerGroupTargetAssignmentMemberValue):
                stored.targets[member_id] = _read_partitions(value.topic_partitions)
            else:
                assert kind is RecordKind.CURRENT
    return stored


def _member(member_id: str, value: ConsumerGroupMemberMetadataValue, current: Message | None) -> ConsumerMember:
    member = ConsumerMember(
        member_id,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        topic_names=tuple(value.subscribed_topic_names),
        topic_regex=value.subscribed_topic_regex or None,
        server_assignor=value.server_assignor or None,
    )
    if not isinstance(current, ConsumerGroupCurrentMemberAssignmentValue):
        return member
    try:
        state = MemberState(current.state)
    except ValueError as error:
        raise DecodeError(f"unknown member state {current.state}") from error
    return replace(
        member,
        epoch=current.member_epoch,
        previous_epoch=current.previous_member_epoch,
        state=state,
        assigned=_read_partitions(current.assigned_partitions),
        revoking=_read_partitions(current.partitions_pending_revocation),
    )


def _topics_value(topics: Mapping[str, TopicShape]) -> Message:
    return ConsumerGroupPartitionMetadataValue(
        topics=[
            TopicMetadata(
                topic_id=shape.topic_id, topic_name=name, num_partitions=shape.partition_count, partition_metadata=[]
            )
            for name, shape in sorted(topics.items())
        ]
    )


def _member_value(member: ConsumerMember) -> Message:
    return ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
    )


def _target_value(target: PartitionSet) -> Message:
    return ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=indexes) for topic_id, indexes in by_topic(target).items()
        ]
    )


def _current_value(member: ConsumerMember) -> Message:
    return ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        assigned_partitions=_topic_partitions(member.assigned),
        partitions_pending_revocation=_topic_partitions(member.revoking),
    )


def _topic_partitions(partitions: PartitionSet) -> list[TopicPartitions]:
    return [
        TopicPartitions(topic_id=topic_id, partitions=indexes) for topic_id, indexes in by_topic(partitions).items()
    ]


def by_topic(partitions: PartitionSet) -> dict[bytes, list[int]]:
    """Return sorted partition numbers by topic id."""
    found: dict[bytes, list[int]] = {}
    for topic_id, index in sorted(partitions):
        found.setdefault(topic_id, []).append(index)
    return found


def _read_partitions(topics: Iterable[TopicPartitions]) -> PartitionSet:
    return frozenset(TopicIdPartition(topic.topic_id, index) for topic in topics for index in topic.partitions)
