"""What Admin takes and returns: frozen values, each with `to_dict()` for JSON.

A result about one of several things has an `error`, which is None on success.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple, cast

from ottla.client.errors.kafka_error import KafkaError
from ottla.protocol.config_resources import ConfigResourceType


class Result:
    """The base class of all results."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON types; an error becomes its name, code and text."""
        fields = dataclasses.fields(cast(Any, self))
        return {each.name: _plain(getattr(self, each.name)) for each in fields}


def _plain(value: object) -> Any:
    if isinstance(value, Result):
        return value.to_dict()
    if isinstance(value, KafkaError):
        return {"name": value.message, "code": value.errno, "message": str(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: _plain(part) for name, part in value._asdict().items()}
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return value


# Topics.


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; -1 means the broker's default, and assignments replace both numbers."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    replica_assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """The brokers of each partition, the preferred leader first."""
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreatedTopic(Result):
    """A topic that was created; numbers and id are None if the broker is too old to report them."""

    name: str
    topic_id: str | None
    num_partitions: int | None
    replication_factor: int | None
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class TopicOutcome(Result):
    """The outcome of a change to a topic."""

    name: str
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class TopicListing(Result):
    """A topic in a list."""

    name: str
    topic_id: str | None
    is_internal: bool
    num_partitions: int
    replication_factor: int


@dataclass(frozen=True, slots=True)
class PartitionDescription(Result):
    """The leader and the replicas of a partition; `leader` is None while there is none."""

    partition: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]

    @property
    def is_under_replicated(self) -> bool:
        """Whether a replica is not in sync."""
        return len(self.isr) < len(self.replicas)


@dataclass(frozen=True, slots=True)
class TopicDescription(Result):
    """A topic with its partitions."""

    name: str
    topic_id: str | None
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]
    error: KafkaError | None = None

    @property
    def replication_factor(self) -> int:
        """The largest number of replicas among its partitions."""
        return max((len(each.replicas) for each in self.partitions), default=0)


# Partitions.


@dataclass(frozen=True, slots=True)
class PartitionOutcome(Result):
    """The outcome of a change to a partition."""

    topic: str
    partition: int
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
