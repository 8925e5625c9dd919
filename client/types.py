"""Arguments and results of the client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from ottla.protocol.identifiers import TopicPartition

__all__ = [
    "ConsumerGroupMetadata",
    "ConsumerRecord",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "RecordMetadata",
    "TopicPartition",
]

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


class OffsetAndMetadata(NamedTuple):
    """What a group has committed for a partition: the offset of the next record to read, and free text."""

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


# Offsets to commit.
Offsets: TypeAlias = "Mapping[TopicPartition, int | OffsetAndMetadata]"


def with_metadata(offsets: Offsets) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return offsets to commit with their metadata, which is empty where none is given."""
    return {
        TopicPartition(*partition): given if isinstance(given, OffsetAndMetadata) else OffsetAndMetadata(given)
        for partition, given in offsets.items()
    }


class ConsumerGroupMetadata(NamedTuple):
    """A group, and who in it has read the records whose offsets a transaction commits (KIP-447).

    Without a member, any producer with the right transactional id may commit for the group.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a point in time, in milliseconds since 1970."""

    offset: int
    timestamp: int
    leader_epoch: int | None = None


class RecordMetadata(NamedTuple):
    """Where a record was written. Without acknowledgements (acks=0) the offset is unknown and -1."""

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int | None
    """Milliseconds since 1970: the record's own, or the broker's if the topic has LogAppendTime."""
    timestamp_type: int
    """0 for CreateTime, 1 for LogAppendTime."""
    log_start_offset: int | None


class ConsumerRecord(msgspec.Struct, Generic[KeyT, ValueT], frozen=True, gc=False):
    """A record, with its key and value as the consumer's deserializers gave them.

    It is immutable. Records with equal fields are equal, and are hashable if key, value and headers are. A struct is
    created in a quarter of the time of a dataclass. Use the functions in `msgspec.structs` instead of `dataclasses`.
    The garbage collector does not track it, so a value that refers to its own record is never freed.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: KeyT | None
    value: ValueT | None
    headers: Sequence[tuple[str, bytes | None]]
    serialized_key_size: int
    """-1 for a null key."""
    serialized_value_size: int
    """-1 for a null value."""
    leader_epoch: int | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition that it was read from."""
        return TopicPartition(self.topic, self.partition)
