"""The controller's messages to a broker: partitions to lead and follow, metadata, replicas to stop.

A `BrokerBatch` is everything that one event has for one broker. It is sent as up to three requests, in this order:
LeaderAndIsr, UpdateMetadata, StopReplica. A batch that was not sent yet absorbs the next one if the order allows it, so
a broker that was away catches up with few requests.

Another UpdateMetadata goes first where the broker may not know enough for its roles, or for its clients:

- A broker that has joined may know nothing. It hears of all partitions, as they were before the event, because its logs
  may take a while to open, and until then it would tell clients that there are no topics.
- Apache Kafka's brokers do not follow a leader that they do not know, and do not try again. When brokers are new to
  each other, they hear of the live brokers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final, NamedTuple, TypeVar

from msgspec import Struct, field

from ottla.broker.controller.messages.shared_metadata import UPDATE_METADATA_VERSION, MetadataStates, SharedMetadata
from ottla.protocol.api import Api
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from ottla.protocol.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from ottla.protocol.messages.update_metadata import UpdateMetadataBroker, UpdateMetadataRequest
from ottla.protocol.primitives import UUID_ZERO

LEADER_AND_ISR_VERSION: Final = 7
STOP_REPLICA_VERSION: Final = 4

_NO_STATES: Final[MetadataStates] = {}

Key = TypeVar("Key")
T = TypeVar("T")


class ControllerRequest(NamedTuple):
    """A request of the controller."""

    api: Api
    version: int
    message: LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest
    # The message in bytes, without a header, if it was encoded already.
    body: bytes | None = None


class BrokerBatch(Struct):
    """The messages to one broker."""

    controller_id: int
    controller_epoch: int
    # Epoch of the broker's registration; the broker refuses messages for an earlier one.
    broker_epoch: int
    leader_and_isr: dict[TopicPartition, LeaderAndIsrPartitionState] = field(default_factory=dict)
    # The addresses of these partitions' leaders, for other brokers.
    live_leaders: dict[int, LeaderAndIsrLiveLeader] = field(default_factory=dict)
    # For a broker that has joined: every partition as it was then. None: the broker knows the cluster.
    joined_metadata: MetadataStates | None = None
    # None: no metadata is sent. Empty: only the live brokers are sent.
    metadata: MetadataStates | None = None
    live_brokers: list[UpdateMetadataBroker] = field(default_factory=list)
    # Whether live brokers or their addresses may be new to the broker.
    are_brokers_news: bool = False
    stop: dict[TopicPartition, StopReplicaPartitionState] = field(default_factory=dict)
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)
    # What the batches of an event to several brokers share: metadata, live brokers and topic ids are not changed then.
    # None: they are this batch's own.
    shared: SharedMetadata | None = None

    def absorb(self, later: BrokerBatch) -> bool:
        """Absorb a later batch and return True; or return False and change nothing.

        A replica that this batch stops must be stopped before it is started again, and an id stands for one topic.
        """
        is_restart = not self.stop.keys().isdisjoint(later.leader_and_isr)
        is_other_topic = any(
            self.topic_ids.get(topic, topic_id) != topic_id for topic, topic_id in later.topic_ids.items()
        )
        if is_restart or is_other_topic:
            return False
        for partition, state in later.leader_and_isr.items():
            earlier = self.leader_and_isr.get(partition)
            is_new = state.is_new or (earlier is not None and earlier.is_new)
            self.leader_and_isr[partition] = replace(state, is_new=is_new)
        self.live_leaders |= later.live_leaders
        self.shared = None
        if later.joined_metadata is not None:
            # It is newer than all that this batch says.
            self.joined_metadata, self.metadata = later.joined_metadata, None
        if later.metadata is not None:
            self.metadata = later.metadata if self.metadata is None else _added(self.metadata, later.metadata)
        if later.joined_metadata is not None or later.metadata is not None:
            self.live_brokers = later.live_brokers
        self.are_brokers_news |= later.are_brokers_news
        for partition, stop in later.stop.items():
            known = self.stop.get(partition)
            is_delete = stop.delete_partition or (known is not None and known.delete_partition)
            self.stop[partition] = replace(stop, delete_partition=is_delete)
        self.topic_ids = _added(self.topic_ids, later.topic_ids)
        return True

    def requests(self) -> Iterator[ControllerRequest]:
        """Return the requests, in the order in which they must be sent.

        A broker leads a partition before it tells clients so.
        """
        metadata = self.metadata
        shared = self.shared or SharedMetadata(
            self.controller_id, self.controller_epoch, self.live_brokers, self.topic_ids
        )
        if self.joined_metadata is not None:
            yield self._update_metadata(shared, self.joined_metadata)
            # Nothing is sent twice.
            metadata = shared.since(self.joined_metadata, metadata or _NO_STATES) or None
        elif self.leader_and_isr and self.are_brokers_news:
            yield self._update_metadata(shared, _NO_STATES)
        if self.leader_and_isr:
            yield ControllerRequest(Api.LEADER_AND_ISR, LEADER_AND_ISR_VERSION, self._leader_and_isr())
        if metadata is not None:
            yield self._update_metadata(shared, metadata)
        if self.stop:
            yield ControllerRequest(Api.STOP_REPLICA, STOP_REPLICA_VERSION, self._stop_replica())

    def _leader_and_isr(self) -> LeaderAndIsrRequest:
        topics: dict[str, list[LeaderAndIsrPartitionState]] = {}
        for partition, state in self.leader_and_isr.items():
            topics.setdefault(partition.topic, []).append(state)
        return LeaderAndIsrRequest(
            controller_id=self.controller_id,
            controller_epoch=self.controller_epoch,
            broker_epoch=self.broker_epoch,
            topic_states=[
                LeaderAndIsrTopicState(topic_name=topic, topic_id=self._id(topic), partition_states=states)
                for topic, states in topics.items()
            ],
            live_leaders=list(self.live_leaders.values()),
        )

    def _update_metadata(self, shared: SharedMetadata, metadata: MetadataStates) -> ControllerRequest:
        message, body = shared.request(metadata, self.broker_epoch)
        return ControllerRequest(Api.UPDATE_METADATA, UPDATE_METADATA_VERSION, message, body)

    def _stop_replica(self) -> StopReplicaRequest:
        topics: dict[str, list[StopReplicaPartitionState]] = {}
        for partition, state in self.stop.items():
            topics.setdefault(partition.topic, []).append(state)
        return StopReplicaRequest(
            controller_id=self.controller_id,
            controller_epoch=self.controller_epoch,
            broker_epoch=self.broker_epoch,
            topic_states=[
                StopReplicaTopicState(topic_name=topic, partition_states=states) for topic, states in topics.items()
            ],
        )

    def _id(self, topic: str) -> bytes:
        return self.topic_ids.get(topic, UUID_ZERO)


def _added(known: Mapping[Key, T], later: Mapping[Key, T]) -> Mapping[Key, T]:
    """Return both, the later ones in place of earlier ones. The first is changed if only its batch has it."""
    merged = known if isinstance(known, _Merged) else _Merged(known)
    merged.update(later)
    return merged


class _Merged(dict[Key, T]):
    """What a batch has put together from several events, and shares with no other."""
