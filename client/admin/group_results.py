"""What Admin returns about consumer groups."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.client.admin.results import Result
from ottla.client.errors.kafka_error import KafkaError
from ottla.protocol.identifiers import TopicPartition


@dataclass(frozen=True, slots=True)
class GroupListing(Result):
    """A group in short; state and type are empty where the broker is too old to tell."""

    group_id: str
    protocol_type: str
    state: str
    type: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class GroupMember(Result):
    """A member of a group; what is None is not known of members of its kind."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    assignment: tuple[TopicPartition, ...]
    rack: str | None = None
    member_epoch: int | None = None
    subscribed_topics: tuple[str, ...] | None = None
    target_assignment: tuple[TopicPartition, ...] | None = None


@dataclass(frozen=True, slots=True)
class GroupDescription(Result):
    """A group with its members; `type` is "classic", or "consumer" for the protocol of KIP-848."""

    group_id: str
    type: str
    state: str
    protocol_type: str
    assignor: str
    coordinator: int
    members: tuple[GroupMember, ...] = ()
    group_epoch: int | None = None
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class GroupOutcome(Result):
    """Whether something was done to a group."""

    group_id: str
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class GroupOffset(Result):
    """What a group has committed for a partition: the offset of the record to read next."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int | None
    metadata: str
    error: KafkaError | None = None
