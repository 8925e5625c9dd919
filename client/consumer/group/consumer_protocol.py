"""Kafka's consumer protocol: the subscriptions and assignments of members of a classic group.

subscription: int16 version, topics, user data, owned partitions (1+), generation (2+), rack (3+)
assignment:   int16 version, partitions by topic, user data
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final

from ottla.client.net.metadata import by_topic
from ottla.protocol.codec import decode_from, encode
from ottla.protocol.errors import DecodeError
from ottla.protocol.identifiers import NO_GENERATION, TopicPartition
from ottla.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)

_VERSION: Final = Struct(">h")
_SUBSCRIPTION_VERSION_MAX: Final = 3
_ASSIGNMENT_VERSION: Final = 0
_ASSIGNMENT_VERSION_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class Subscription:
    """The subscription that a member sends to the leader."""

    topics: Collection[str]
    owned: Collection[TopicPartition] = ()
    generation: int = NO_GENERATION
    user_data: bytes | None = None
    rack_id: str | None = None
    group_instance_id: str | None = None


def encode_subscription(subscription: Subscription, version: int = _SUBSCRIPTION_VERSION_MAX) -> bytes:
    """Encode a subscription."""
    owned = [
        ConsumerProtocolSubscriptionTopicPartition(topic=topic, partitions=numbers)
        for topic, numbers in by_topic(sorted(subscription.owned)).items()
    ]
    body = ConsumerProtocolSubscription(
        topics=sorted(subscription.topics),
        user_data=subscription.user_data,
        owned_partitions=owned,
        generation_id=subscription.generation,
        rack_id=subscription.rack_id,
    )
    return _VERSION.pack(version) + encode(body, version)


def decode_subscription(data: bytes, group_instance_id: str | None = None) -> Subscription:
    """Decode a subscription; extra bytes of a newer version are ignored."""
    body = _decode(ConsumerProtocolSubscription, data, _SUBSCRIPTION_VERSION_MAX)
    owned = [TopicPartition(row.topic, number) for row in body.owned_partitions for number in row.partitions]
    return Subscription(body.topics, owned, body.generation_id, body.user_data, body.rack_id, group_instance_id)


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """Encode an assignment."""
    rows = [
        ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=numbers)
        for topic, numbers in by_topic(sorted(partitions)).items()
    ]
    body = ConsumerProtocolAssignment(assigned_partitions=rows)
    return _VERSION.pack(_ASSIGNMENT_VERSION) + encode(body, _ASSIGNMENT_VERSION)


def decode_assignment(data: bytes) -> set[TopicPartition]:
    """Decode an assignment; empty bytes mean no partitions."""
    if not data:
        return set()
    body = _decode(ConsumerProtocolAssignment, data, _ASSIGNMENT_VERSION_MAX)
    return {TopicPartition(row.topic, number) for row in body.assigned_partitions for number in row.partitions}


def _decode(layout: type[Any], data: bytes, version_max: int) -> Any:
    if len(data) < _VERSION.size:
        raise DecodeError(f"{len(data)} bytes are too few for {layout.__name__}")
    (version,) = _VERSION.unpack_from(data)
    if version < 0:
        raise DecodeError(f"version {version} of {layout.__name__}")
    return decode_from(layout, min(version, version_max), data, _VERSION.size)[0]
