"""What Admin takes and returns about topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ottla.client.admin.result import Result
from ottla.client.errors.kafka_error import KafkaError


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
class DeletedTopic(Result):
    """A deleted topic that is kept; `error` says why it cannot be brought back now."""

    name: str
    topic_id: str
    num_partitions: int
    deleted_ms: int
    kept_until_ms: int
    given_up_by: tuple[int, ...]
    """Brokers that do not have their replicas any more, because their disks needed the space."""
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class UndeletedTopic(Result):
    """The outcome for a topic that was to be brought back; `name` is None if it was not."""

    name: str | None
    topic_id: str
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

    def has_too_few(self, isr_min: int) -> bool:
        """Whether acks=all is refused: too few replicas are in sync. A topic with fewer replicas needs all of them."""
        return len(self.isr) < min(isr_min, len(self.replicas))


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
