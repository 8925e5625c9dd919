"""What Admin takes and returns: frozen values, each with `to_dict()` for JSON.

A result about one of several things has an `error`, which is None on success.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

from ottla.client.admin.result import Result
from ottla.client.admin.topic_results import (
    CreatedTopic,
    DeletedTopic,
    NewTopic,
    PartitionDescription,
    TopicDescription,
    TopicListing,
    TopicOutcome,
    UndeletedTopic,
)
from ottla.client.errors.kafka_error import KafkaError
from ottla.protocol.config_resources import ConfigResourceType

__all__ = [
    "ApiSupport",
    "BrokerDescription",
    "ClusterDescription",
    "ConfigAppend",
    "ConfigDescription",
    "ConfigEntry",
    "ConfigOutcome",
    "ConfigResource",
    "ConfigSubtract",
    "ConfigSynonym",
    "CreatedTopic",
    "DeletedRecords",
    "DeletedTopic",
    "ElectionOutcome",
    "ListedOffset",
    "LogDirDescription",
    "LogDirReplica",
    "NewTopic",
    "OffsetSpec",
    "PartitionDescription",
    "PartitionOutcome",
    "Reassignment",
    "ReplicaOutcome",
    "Result",
    "TopicDescription",
    "TopicListing",
    "TopicOutcome",
    "TopicPartitionReplica",
    "UndeletedTopic",
]

# Partitions.


@dataclass(frozen=True, slots=True)
class PartitionOutcome(Result):
    """The outcome of a change to a partition."""

    topic: str
    partition: int
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class ElectionOutcome(Result):
    """The outcome of an election; it is not held if the partition already has the leader that it should have."""

    topic: str
    partition: int
    is_elected: bool
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class DeletedRecords(Result):
    """The start of a partition after records were deleted."""

    topic: str
    partition: int
    low_watermark: int
    error: KafkaError | None = None


class OffsetSpec(IntEnum):
    """Which offset to look up, instead of a time in milliseconds."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3


@dataclass(frozen=True, slots=True)
class ListedOffset(Result):
    """An offset that was looked up; -1 if no record is that recent."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    leader_epoch: int
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class Reassignment(Result):
    """A partition that is moving; `replicas` has the old and the new ones."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]


# Brokers and configs.


@dataclass(frozen=True, slots=True)
class BrokerDescription(Result):
    """A broker and where it listens."""

    broker_id: int
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True)
class ClusterDescription(Result):
    """The id, the controller and the brokers of a cluster; `controller_id` is None while there is no controller."""

    cluster_id: str | None
    controller_id: int | None
    brokers: tuple[BrokerDescription, ...]


@dataclass(frozen=True, slots=True)
class ApiSupport(Result):
    """An API that a broker serves, with its versions."""

    api_key: int
    name: str
    version_min: int
    version_max: int


@dataclass(frozen=True, slots=True)
class LogDirReplica(Result):
    """A replica in a log directory; `offset_lag` is its lag, `is_future` means that it is moving here."""

    topic: str
    partition: int
    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDirDescription(Result):
    """A log directory of a broker; the sizes of its disk are None if the broker is too old to report them."""

    broker_id: int
    path: str
    total_bytes: int | None
    usable_bytes: int | None
    replicas: tuple[LogDirReplica, ...]
    error: KafkaError | None = None

    @property
    def size_bytes(self) -> int:
        """The total size of the replicas."""
        return sum(each.size_bytes for each in self.replicas)


class TopicPartitionReplica(NamedTuple):
    """The replica of a partition on one broker."""

    topic: str
    partition: int
    broker_id: int


@dataclass(frozen=True, slots=True)
class ReplicaOutcome(Result):
    """The outcome of a change to a replica."""

    topic: str
    partition: int
    broker_id: int
    error: KafkaError | None = None


class ConfigResource(NamedTuple):
    """A topic, or a broker by its id; the broker "" means the options for all brokers."""

    type: ConfigResourceType
    name: str


class ConfigAppend(NamedTuple):
    """Add to an option that is a list."""

    value: str


class ConfigSubtract(NamedTuple):
    """Remove from an option that is a list."""

    value: str


@dataclass(frozen=True, slots=True)
class ConfigSynonym(Result):
    """A place that an option could take its value from, and the value there."""

    name: str
    value: str | None
    source: str


@dataclass(frozen=True, slots=True)
class ConfigEntry(Result):
    """An option with its value, which is None if it is a secret or not set."""

    name: str
    value: str | None
    source: str
    is_default: bool
    is_sensitive: bool
    is_read_only: bool
    documentation: str | None = None
    synonyms: tuple[ConfigSynonym, ...] = ()
    """Where the value may come from, the strongest first; empty unless asked for."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON types, with synonyms only if they were asked for."""
        fields = Result.to_dict(self)
        return fields if self.synonyms else {name: value for name, value in fields.items() if name != "synonyms"}


@dataclass(frozen=True, slots=True)
class ConfigDescription(Result):
    """The options of a topic or a broker."""

    resource_type: str
    resource_name: str
    entries: tuple[ConfigEntry, ...]
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class ConfigOutcome(Result):
    """The outcome of a change to the options of a topic or a broker."""

    resource_type: str
    resource_name: str
    error: KafkaError | None = None
