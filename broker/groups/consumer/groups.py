"""Groups of the new protocol in the hands of the coordinator: next to the classic ones, on the same topic.

A group is of one kind at a time. While nobody is in it, whoever comes first says of which.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import structlog

from ottla.broker.cluster.metadata import MetadataCache, MetadataSnapshot, TopicMetadata
from ottla.broker.config import BrokerConfig
from ottla.broker.config.rows.coordinators import ASSIGNOR_NAMES
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
from ottla.broker.groups.records import StoredRecord
from ottla.protocol.errors import DecodeError, ErrorCode, KafkaError
from ottla.protocol.primitives import UUID_ZERO

log = structlog.get_logger(__name__)

_DEFAULT_ASSIGNORS: Final = ("uniform",)


class TopicShapes(Mapping[str, TopicShape]):
    """The topics of a metadata snapshot, as groups look at them."""

    def __init__(self, snapshot: MetadataSnapshot) -> None:
        self.snapshot = snapshot
        self._topics: Mapping[str, TopicMetadata] = snapshot.topics

    def __getitem__(self, name: str) -> TopicShape:
        topic = self._topics[name]
        if topic.id == UUID_ZERO:
            # One that was made before topics had ids cannot be told apart in this protocol.
            raise KeyError(name)
        return TopicShape(topic.id, len(topic.partitions))

    def __iter__(self) -> Iterator[str]:
        return iter(self._topics)

    def __len__(self) -> int:
        return len(self._topics)


class TopicIndexes(NamedTuple):
    """Partitions of one topic."""

    topic_id: bytes
    name: str
    indexes: list[int]


class ConsumerGroupDescription(NamedTuple):
    """A group as ConsumerGroupDescribe tells of it."""

    state: str
    epoch: int
    assignment_epoch: int
    assignor: str
    members: list[MemberDescription]


class ConsumerGroups:
    """Has groups of the new protocol do what members ask."""

    def __init__(self, coordinator: GroupCoordinator, metadata: MetadataCache) -> None:
        self._coordinator = coordinator
        self._metadata = metadata
        self._shapes = TopicShapes(metadata.snapshot)
        coordinator.load_other = self._load
        coordinator.make_room = self._make_room

    def heartbeat(self, group_id: str, request: ConsumerHeartbeat, respond: RespondHeartbeat) -> None:
        """Take what a member says; a group is made for the first one that joins."""
        coordinator = self._coordinator
        entry = coordinator.with_group(group_id)
        if entry is None:
            if request.member_epoch != JOIN_EPOCH:
                # Kafka says GROUP_ID_NOT_FOUND; this answer is the one that makes members join again.
                respond(ConsumerHeartbeatReply(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group {group_id}"))
                return
            entry = coordinator.group_or_new(group_id, self._new)

        def heartbeat(now_ms: int) -> Effects:
            group = self._of_kind(entry, request)
            if group is None:
                refusal = ConsumerHeartbeatReply(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the group is a classic one")
                return Effects([lambda: respond(refusal)])
            return group.heartbeat(request, respond, self._topics(), now_ms)

        coordinator.change(entry, heartbeat)

    def describe(self, group_id: str) -> ConsumerGroupDescription:
        """Describe a group; KafkaError where there is none of this kind, or not here."""
        entry = self._coordinator.with_group(group_id)
        if entry is None or not isinstance(entry.group, ConsumerGroup):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id} of the new protocol")
        with entry.lock:
            group = entry.group
            return ConsumerGroupDescription(
                group.state.value, group.epoch, group.assignment_epoch, group.assignor_name, group.describe()
            )

    def named(self, partitions: PartitionSet) -> list[TopicIndexes]:
        """Return partitions topic by topic, with names; those of topics that are gone are left out."""
        names = self._metadata.snapshot.topic_names
        return [
            TopicIndexes(topic_id, names[topic_id], indexes)
            for topic_id, indexes in by_topic(partitions).items()
            if topic_id in names
        ]

    # Kinds

    def _of_kind(self, entry: CoordinatedGroup, request: ConsumerHeartbeat) -> ConsumerGroup | None:
        """Return the group if it is of this kind, or can become so. The caller holds its lock."""
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
        """Remove a group that nobody is in, so that a classic one can take its place. The caller holds its lock."""
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
        """Return the topics that there are: the same object until the metadata changes."""
        snapshot = self._metadata.snapshot
        if self._shapes.snapshot is not snapshot:
            self._shapes = TopicShapes(snapshot)
        return self._shapes


def assignor_names(config: BrokerConfig) -> tuple[str, ...]:
    """Return the assignors that members may ask for, the default first."""
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
