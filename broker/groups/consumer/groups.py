"""Connects groups of the consumer protocol to the coordinator, which also has the classic groups.

A group is of one kind at a time. The kind of an empty group changes when a member of the other protocol joins.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import structlog

from ottla.broker.cluster.metadata import MetadataCache, MetadataSnapshot, TopicMetadata
from ottla.broker.config import BrokerConfig
from ottla.broker.config.rows.coordinators import ASSIGNOR_NAMES
from ottla.broker.coordination.stored_records import StoredRecord
from ottla.broker.groups.classic.group import ClassicGroup
from ottla.broker.groups.consumer.assignors import PartitionSet
from ottla.broker.groups.consumer.group import ConsumerGroup
from ottla.broker.groups.consumer.messages import (
    JOIN_EPOCH,
    ConsumerGroupConfig,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    MemberDescription,
    RespondHeartbeat,
    TopicShape,
)
from ottla.broker.groups.consumer.records import by_topic, read_group
from ottla.broker.groups.coordinated_group import CoordinatedGroup
from ottla.broker.groups.coordinator import GroupCoordinator
from ottla.broker.groups.effects import Effects
from ottla.protocol.errors import DecodeError, ErrorCode, KafkaError
from ottla.protocol.primitives import UUID_ZERO

log = structlog.get_logger(__name__)

_DEFAULT_ASSIGNORS: Final = ("uniform",)


class TopicShapes(Mapping[str, TopicShape]):
    """The topics of a metadata snapshot, each with its id and its number of partitions."""

    def __init__(self, snapshot: MetadataSnapshot) -> None:
        self.snapshot = snapshot
        self._topics: Mapping[str, TopicMetadata] = snapshot.topics

    def __getitem__(self, name: str) -> TopicShape:
        topic = self._topics[name]
        if topic.id == UUID_ZERO:
            # This protocol identifies topics by id, and topics created by very old brokers have none.
            raise KeyError(name)
        return TopicShape(topic.id, len(topic.partitions))

    def __iter__(self) -> Iterator[str]:
        return iter(self._topics)

    def __len__(self) -> int:
        return len(self._topics)


class TopicIndexes(NamedTuple):
    """The numbers of some partitions of one topic."""

    topic_id: bytes
    name: str
    indexes: list[int]


class ConsumerGroupDescription(NamedTuple):
    """A group in the response to ConsumerGroupDescribe."""

    state: str
    epoch: int
    assignment_epoch: int
    assignor: str
    members: list[MemberDescription]


class ConsumerGroups:
    """Handles the requests to groups of the consumer protocol."""

    def __init__(self, coordinator: GroupCoordinator, metadata: MetadataCache) -> None:
        self._coordinator = coordinator
        self._metadata = metadata
        self._shapes = TopicShapes(metadata.snapshot)
        coordinator.load_other = self._load
        coordinator.make_room = self._make_room

    def heartbeat(self, group_id: str, request: ConsumerHeartbeat, respond: RespondHeartbeat) -> None:
        """Handle a heartbeat. The first member to join creates the group."""
        coordinator = self._coordinator
        entry = coordinator.with_group(group_id)
        if entry is None:
            if request.member_epoch != JOIN_EPOCH:
                # Kafka returns GROUP_ID_NOT_FOUND here, but only UNKNOWN_MEMBER_ID makes a member join again.
                respond(ConsumerHeartbeatReply(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group_id} does not exist"))
                return
            entry = coordinator.group_or_new(group_id, self._new)

        def heartbeat(now_ms: int) -> Effects:
            group = self._of_kind(entry, request)
            if group is None:
                refusal = ConsumerHeartbeatReply(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the group is a classic group")
                return Effects([lambda: respond(refusal)])
            return group.heartbeat(request, respond, self._topics(), now_ms)

        coordinator.change(entry, heartbeat)

    def describe(self, group_id: str) -> ConsumerGroupDescription:
        """Describe a group; KafkaError if this broker has no such group of the consumer protocol."""
        entry = self._coordinator.with_group(group_id)
        if entry is None or not isinstance(entry.group, ConsumerGroup):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no consumer group {group_id}")
        with entry.lock:
            group = entry.group
            return ConsumerGroupDescription(
                group.state.value, group.epoch, group.assignment_epoch, group.assignor_name, group.describe()
            )

    def named(self, partitions: PartitionSet) -> list[TopicIndexes]:
        """Return partitions by topic, with topic names. Partitions of deleted topics are left out."""
        names = self._metadata.snapshot.topic_names
        return [
            TopicIndexes(topic_id, names[topic_id], indexes)
            for topic_id, indexes in by_topic(partitions).items()
            if topic_id in names
        ]

    # Kinds of groups

    def _of_kind(self, entry: CoordinatedGroup, request: ConsumerHeartbeat) -> ConsumerGroup | None:
        """Return the group, converted if it is an empty classic one; None otherwise. The caller holds its lock."""
        group = entry.group
        if isinstance(group, ClassicGroup):
            if request.member_epoch != JOIN_EPOCH or not group.is_empty:
                return None
            tombstones = group.tombstones()
            if tombstones:
                self._coordinator.begin_append(entry.partition, tombstones)
            entry.group = group = self._new(group.group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def _make_room(self, entry: CoordinatedGroup) -> bool:
        """Delete an empty group so that a classic one can replace it. The caller holds its lock."""
        group = entry.group
        if not isinstance(group, ConsumerGroup) or not group.is_empty:
            return False
        self._coordinator.begin_append(entry.partition, group.tombstones())
        return True

    def _new(self, group_id: str) -> ConsumerGroup:
        return ConsumerGroup(group_id, self._config(), _new_id)

    def _load(
        self, coordinator: GroupCoordinator, group_id: str, records: dict[int, list[StoredRecord]]
    ) -> ConsumerGroup | None:
        try:
            stored = read_group(group_id, (record for rows in records.values() for record in rows))
        except DecodeError as error:
            log.error("group_record_unreadable", group=group_id, error=str(error))
            return None
        if stored is None:
            return None
        return ConsumerGroup.load(stored, self._config(), _new_id, coordinator.now_ms())

    def _config(self) -> ConsumerGroupConfig:
        return _group_config(self._coordinator.config())

    def _topics(self) -> TopicShapes:
        """Return all topics: the same object until the metadata changes."""
        snapshot = self._metadata.snapshot
        if self._shapes.snapshot is not snapshot:
            self._shapes = TopicShapes(snapshot)
        return self._shapes


def assignor_names(config: BrokerConfig) -> tuple[str, ...]:
    """Return the names of the configured assignors, the default first."""
    named = dict.fromkeys(ASSIGNOR_NAMES[name] for name in config.group_consumer_assignors)
    return tuple(named) or _DEFAULT_ASSIGNORS


def _group_config(config: BrokerConfig) -> ConsumerGroupConfig:
    return ConsumerGroupConfig(
        config.group_consumer_session_timeout_ms,
        config.group_consumer_heartbeat_interval_ms,
        config.group_consumer_max_size,
        assignor_names(config),
    )


def _new_id() -> str:
    return str(uuid.uuid4())
