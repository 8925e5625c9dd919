"""aiokafka's arguments and results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from ottla.client.aiokafka.errors import KafkaError

__all__ = [
    "BrokerMetadata",
    "ConsumerRecord",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PartitionMetadata",
    "RecordMetadata",
    "TopicPartition",
]


class TopicPartition(NamedTuple):
    """A partition of a topic; equal to our own class of this name, but it prints as aiokafka's does."""

    topic: str
    partition: int


class BrokerMetadata(NamedTuple):
    """A broker and where it listens."""

    nodeId: int | str  # noqa: N815 - aiokafka's name
    host: str
    port: int
    rack: str | None


class PartitionMetadata(NamedTuple):
    """The leader and the replicas of a partition."""

    topic: str
    partition: int
    leader: int
    replicas: list[int]
    isr: list[int]
    error: KafkaError | None


class OffsetAndMetadata(NamedTuple):
    """A committed offset, and free text."""

    offset: int
    metadata: str


class RecordMetadata(NamedTuple):
    """Where a record was written."""

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int | None
    timestamp_type: int
    log_start_offset: int | None


KT = TypeVar("KT")
VT = TypeVar("VT")


@dataclass
class ConsumerRecord(Generic[KT, VT]):
    """A record that was read."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: KT | None
    value: VT | None
    checksum: int | None
    serialized_key_size: int
    serialized_value_size: int
    headers: Sequence[tuple[str, bytes]]


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a point in time."""

    offset: int
    timestamp: int | None


def as_partitions(partitions: Iterable[tuple[str, int]]) -> frozenset[TopicPartition]:
    """Return partitions of any class as aiokafka's."""
    return frozenset(TopicPartition(*partition) for partition in partitions)


def checked_offsets(offsets: Mapping[Any, Any]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return offsets to commit with their metadata; ValueError or TypeError if they are not well formed."""
    if not offsets or not isinstance(offsets, dict):
        raise ValueError(offsets)
    checked = {}
    for partition, given in offsets.items():
        if not isinstance(partition, TopicPartition):
            raise TypeError("Key should be TopicPartition instance")
        if isinstance(given, int):
            checked[partition] = OffsetAndMetadata(given, "")
            continue
        try:
            offset, metadata = given
        except Exception as error:
            raise ValueError(offsets) from error
        if not isinstance(metadata, str):
            raise TypeError("Metadata should be a string")
        checked[partition] = OffsetAndMetadata(offset, metadata)
    return checked
