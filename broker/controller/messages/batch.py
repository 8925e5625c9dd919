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
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from ottla.protocol.api import Api
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from ottla.protocol.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from ottla.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from ottla.protocol.primitives import UUID_ZERO

LEADER_AND_ISR_VERSION: Final = 7
UPDATE_METADATA_VERSION: Final = 8
STOP_REPLICA_VERSION: Final = 4


class ControllerRequest(NamedTuple):
    """A request of the controller."""

    api: Api
    version: int
    message: LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest


@dataclass(slots=True)
class BrokerBatch:
    """The messages to one broker."""

    controller_id: int
    controller_epoch: int
    # Epoch of the broker's registration; the broker refuses messages for an earlier one.
    broker_epoch: int
    leader_and_isr: dict[TopicPartition, LeaderAndIsrPartitionState] = field(default_factory=dict)
    # The addresses of these partitions' leaders, for other brokers.
    live_leaders: dict[int, LeaderAndIsrLiveLeader] = field(default_factory=dict)
    # For a broker that has joined: every partition as it was then. None: the broker knows the cluster.
    joined_metadata: dict[TopicPartition, UpdateMetadataPartitionState] | None = None
    # None: no metadata is sent. Empty: only the live brokers are sent.
    metadata: dict[TopicPartition, UpdateMetadataPartitionState] | None = None
    live_brokers: list[UpdateMetadataBroker] = field(default_factory=list)
    # Whether live brokers or their addresses may be new to the broker.
    are_brokers_news: bool = False
    stop: dict[TopicPartition, StopReplicaPartitionState] = field(default_factory=dict)
    topic_ids: dict[str, bytes] = field(default_factory=dict)

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
        if later.joined_metadata is not None:
            # It is newer than all that this batch says.
            self.joined_metadata, self.metadata = later.joined_metadata, None
        if later.metadata is not None:
            self.metadata = later.metadata if self.metadata is None else self.metadata | later.metadata
        if later.joined_metadata is not None or later.metadata is not None:
            self.live_brokers = later.live_brokers
        self.are_brokers_news |= later.are_brokers_news
        for partition, stop in later.stop.items():
            known = self.stop.get(partition)
            is_delete = stop.delete_partition or (known is not None and known.delete_partition)
            self.stop[partition] = replace(stop, delete_partition=is_delete)
        self.topic_ids |= later.topic_ids
        return True

    def requests(self) -> Iterator[ControllerRequest]:
        """Return the requests, in the order in which they must be sent.

        A broker leads a partition before it tells clients so.
        """
        metadata = self.metadata
        if self.joined_metadata is not None:
            yield self._update_metadata(self.joined_metadata)
            metadata = self._since_joined()
        elif self.leader_and_isr and self.are_brokers_news:
            yield self._update_metadata({})
        if self.leader_and_isr:
            yield ControllerRequest(Api.LEADER_AND_ISR, LEADER_AND_ISR_VERSION, self._leader_and_isr())
        if metadata is not None:
            yield self._update_metadata(metadata)
        if self.stop:
            yield ControllerRequest(Api.STOP_REPLICA, STOP_REPLICA_VERSION, self._stop_replica())

    def _since_joined(self) -> dict[TopicPartition, UpdateMetadataPartitionState] | None:
        """Return what the metadata of a broker that has joined lacks, None if nothing."""
        before = self.joined_metadata or {}
        return {each: state for each, state in (self.metadata or {}).items() if before.get(each) != state} or None

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

    def _update_metadata(self, metadata: Mapping[TopicPartition, UpdateMetadataPartitionState]) -> ControllerRequest:
        topics: dict[str, list[UpdateMetadataPartitionState]] = {}
        for partition, state in metadata.items():
            topics.setdefault(partition.topic, []).append(state)
        message = UpdateMetadataRequest(
            controller_id=self.controller_id,
            controller_epoch=self.controller_epoch,
            broker_epoch=self.broker_epoch,
            topic_states=[
                UpdateMetadataTopicState(topic_name=topic, topic_id=self._id(topic), partition_states=states)
                for topic, states in topics.items()
            ],
            live_brokers=self.live_brokers,
        )
        return ControllerRequest(Api.UPDATE_METADATA, UPDATE_METADATA_VERSION, message)

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
