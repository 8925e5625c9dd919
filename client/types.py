"""Values that callers of the client give and get."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

import msgspec

from ottla.protocol.identifiers import TopicPartition

__all__ = [
    "ConsumerRecord",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "RecordMetadata",
    "TopicPartition",
]

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


class OffsetAndMetadata(NamedTuple):
    """What a group has committed for a partition: the offset of the record to read next, and a text of its own."""

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a point in time, in milliseconds since 1970."""

    offset: int
    timestamp: int
    leader_epoch: int | None = None


class RecordMetadata(NamedTuple):
    """Where a record was written. Without acknowledgements (acks=0) the offset is -1, as nobody says."""

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int | None
    """Milliseconds since 1970: the record's own, or the broker's where the topic has LogAppendTime."""
    timestamp_type: int
    """0 for CreateTime, 1 for LogAppendTime."""
    log_start_offset: int | None


class ConsumerRecord(msgspec.Struct, Generic[KeyT, ValueT], frozen=True, gc=False):
    """A record, with its key and value as the consumer's deserializers gave them.

    It cannot be changed; records with equal fields are equal, and have a hash where key, value and headers have one.
    A struct is made in a quarter of the time that a dataclass takes. It is not one: `msgspec.structs` has what
    `dataclasses` has for those. The garbage collector does not look into it, so that a value which is made to refer to
    its own record is never freed.
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
