"""What Admin returns about consumer groups."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.client.admin.result import Result
from ottla.client.errors.kafka_error import KafkaError
from ottla.protocol.identifiers import TopicPartition


@dataclass(frozen=True, slots=True)
class GroupListing(Result):
    """A group in a list; state and type are empty if the broker is too old to report them."""

    group_id: str
    protocol_type: str
    state: str
    type: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class GroupMember(Result):
    """A member of a group; fields that its protocol does not have are None."""

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
    """The outcome of a change to a group."""

    group_id: str
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class GroupOffset(Result):
    """The committed offset of a group in a partition: the next record to read.

    `moved_ms` is when the group moved on to this offset, in milliseconds since 1970; only brokers of Ottla say so.
    """

    topic: str
    partition: int
    offset: int
    leader_epoch: int | None
    metadata: str
    error: KafkaError | None = None
    moved_ms: int | None = None
