"""Collects the messages of one event to the brokers, as structs of the protocol."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import structlog

from ottla.broker.controller.context import ControllerContext, RegisteredBroker
from ottla.broker.controller.messages.batch import BrokerBatch
from ottla.broker.controller.messages.shared_metadata import SharedMetadata
from ottla.broker.controller.partition_states import LeaderAndIsr
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrLiveLeader, LeaderAndIsrPartitionState
from ottla.protocol.messages.stop_replica import EPOCH_DURING_DELETE, StopReplicaPartitionState
from ottla.protocol.messages.update_metadata import (
    LEADER_DURING_DELETE,
    SECURITY_PROTOCOLS,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
)
from ottla.protocol.records import NO_LEADER_EPOCH

log = structlog.get_logger(__name__)

_PROTOCOL_NUMBERS: Final = {name: number for number, name in SECURITY_PROTOCOLS.items()}


class Outbox:
    """The batches of the current event, by broker. Only live brokers get messages.

    Nearly all metadata is for all brokers. It is collected once, and their batches share it.
    """

    def __init__(self, context: ControllerContext, listener: str) -> None:
        """`listener` is the one that brokers use among themselves."""
        self._context = context
        self._listener = listener
        self._batches: dict[int, BrokerBatch] = {}
        # The metadata for all brokers; None if none is to be sent.
        self._metadata: dict[TopicPartition, UpdateMetadataPartitionState] | None = None
        # Metadata that only some brokers are sent, by broker.
        self._own_metadata: dict[int, dict[TopicPartition, UpdateMetadataPartitionState]] = {}
        # The ids of all topics that the event names.
        self._topic_ids: dict[str, bytes] = {}
        # The addresses of the leaders that the event names; None for those that have none.
        self._live_leaders: dict[int, LeaderAndIsrLiveLeader | None] = {}

    def take(self) -> dict[int, BrokerBatch]:
        """Return the batches, and start with empty ones."""
        if self._metadata is not None:
            self._batches_for(self._context.brokers)
        batches, self._batches = self._batches, {}
        metadata, self._metadata = self._metadata, None
        own_metadata, self._own_metadata = self._own_metadata, {}
        topic_ids, self._topic_ids = self._topic_ids, {}
        self._live_leaders.clear()
        if not batches:
            return batches
        live_brokers = [_live_broker(broker) for broker in self._context.brokers.values()]
        shared = SharedMetadata(self._context.controller_id, self._context.epoch, live_brokers, topic_ids)
        for broker, batch in batches.items():
            own = own_metadata.get(broker)
            batch.metadata = metadata if own is None else {**(metadata or {}), **own}
            batch.live_brokers, batch.topic_ids, batch.shared = live_brokers, topic_ids, shared
        return batches

    def add_leader_and_isr(
        self, brokers: Iterable[int], partition: TopicPartition, state: LeaderAndIsr, *, is_new: bool = False
    ) -> None:
        """Tell brokers their role in a partition, and all brokers its metadata."""
        if state.leader not in self._live_leaders:
            self._live_leaders[state.leader] = self._live_leader(state.leader)
        leader = self._live_leaders[state.leader]
        # The same for all of them, unless one has heard of the partition as new before.
        messages: dict[bool, LeaderAndIsrPartitionState] = {}
        for batch in self._batches_for(brokers):
            earlier = batch.leader_and_isr.get(partition)
            is_new_here = is_new or (earlier is not None and earlier.is_new)
            if is_new_here not in messages:
                messages[is_new_here] = self._leader_and_isr(partition, state, is_new=is_new_here)
            batch.leader_and_isr[partition] = messages[is_new_here]
            if leader is not None:
                batch.live_leaders[leader.broker_id] = leader
        self._name_topic(partition.topic)
        self.add_metadata([partition])

    def _leader_and_isr(
        self, partition: TopicPartition, state: LeaderAndIsr, *, is_new: bool
    ) -> LeaderAndIsrPartitionState:
        assignment = self._context.assignment(partition)
        return LeaderAndIsrPartitionState(
            partition_index=partition.partition,
            controller_epoch=state.controller_epoch,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=list(state.isr),
            partition_epoch=state.partition_epoch,
            replicas=list(assignment.replicas),
            adding_replicas=list(assignment.adding),
            removing_replicas=list(assignment.removing),
            is_new=is_new,
            leader_recovery_state=state.leader_recovery_state,
        )

    def add_metadata(self, partitions: Iterable[TopicPartition], brokers: Iterable[int] | None = None) -> None:
        """Send some brokers, or all, the metadata of some partitions. It always includes the live brokers."""
        states = self._metadata_states(partitions)
        for topic in {partition.topic for partition in states}:
            self._name_topic(topic)
        if brokers is None:
            if self._metadata is None:
                self._metadata = {}
            self._metadata.update(states)
            # What a broker was to hear by itself is older by now.
            for own in self._own_metadata.values():
                own.update(states)
            return
        for broker in brokers:
            if self._batches_for([broker]):
                self._own_metadata.setdefault(broker, {}).update(states)

    def add_brokers(self, brokers: Iterable[int] | None = None) -> None:
        """Send some brokers, or all, the live brokers and their addresses before anything else, because some may be
        new.
        """
        self.add_metadata([], brokers)
        for batch in self._batches_for(self._context.brokers if brokers is None else brokers):
            batch.are_brokers_news = True

    def add_joined(self, brokers: Iterable[int]) -> None:
        """Send brokers that may know nothing the metadata of all partitions, as they are now, before anything else."""
        states = self._metadata_states(self._context.partitions())
        for topic in {partition.topic for partition in states}:
            self._name_topic(topic)
        for batch in self._batches_for(brokers):
            batch.joined_metadata = states

    def add_stop_replica(self, broker: int, partition: TopicPartition, *, delete: bool) -> None:
        """Tell a broker to stop a replica, and perhaps to delete its log."""
        state = self._context.leadership.get(partition)
        if partition.topic in self._context.deleting:
            leader_epoch = EPOCH_DURING_DELETE
        else:
            leader_epoch = NO_LEADER_EPOCH if state is None else state.leader_epoch
        self._name_topic(partition.topic)
        for batch in self._batches_for([broker]):
            known = batch.stop.get(partition)
            batch.stop[partition] = StopReplicaPartitionState(
                partition_index=partition.partition,
                leader_epoch=leader_epoch,
                delete_partition=delete or (known is not None and known.delete_partition),
                kept_until_ms=self._context.kept.get(partition.topic, -1),
            )

    def _batches_for(self, brokers: Iterable[int]) -> list[BrokerBatch]:
        batches = []
        for broker in brokers:
            registered = self._context.brokers.get(broker)
            if registered is None:
                continue
            batch = self._batches.get(broker)
            if batch is None:
                batch = BrokerBatch(self._context.controller_id, self._context.epoch, registered.epoch)
                self._batches[broker] = batch
            batches.append(batch)
        return batches

    def _name_topic(self, topic: str) -> None:
        topic_id = self._context.topic_ids.get(topic)
        if topic_id is not None:
            self._topic_ids[topic] = topic_id

    def _metadata_states(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, UpdateMetadataPartitionState]:
        return {partition: state for partition in partitions if (state := self._metadata_state(partition)) is not None}

    def _metadata_state(self, partition: TopicPartition) -> UpdateMetadataPartitionState | None:
        state = self._context.leadership.get(partition)
        replicas = self._context.assignment(partition).replicas
        online = self._context.online_replicas(partition)
        is_deleted = partition.topic in self._context.deleting
        if state is None and not is_deleted:
            return None
        return UpdateMetadataPartitionState(
            partition_index=partition.partition,
            controller_epoch=self._context.epoch if state is None else state.controller_epoch,
            leader=LEADER_DURING_DELETE if is_deleted or state is None else state.leader,
            leader_epoch=0 if state is None else state.leader_epoch,
            isr=[] if state is None else list(state.isr),
            zk_version=0 if state is None else state.partition_epoch,
            replicas=list(replicas),
            offline_replicas=[broker for broker in replicas if broker not in online],
            is_kept=is_deleted and partition.topic in self._context.kept,
        )

    def _live_leader(self, broker: int) -> LeaderAndIsrLiveLeader | None:
        registered = self._context.brokers.get(broker)
        if registered is None:
            return None
        for endpoint in registered.node.parsed_endpoints():
            if endpoint.listener_name == self._listener:
                address = endpoint.address
                return LeaderAndIsrLiveLeader(broker_id=broker, host_name=address.host, port=address.port)
        log.error("leader_lacks_listener", broker=broker, listener=self._listener)
        return None


def _live_broker(broker: RegisteredBroker) -> UpdateMetadataBroker:
    return UpdateMetadataBroker(
        id=broker.id,
        endpoints=[
            UpdateMetadataEndpoint(
                host=endpoint.address.host,
                port=endpoint.address.port,
                listener=endpoint.listener_name,
                security_protocol=_PROTOCOL_NUMBERS.get(broker.node.protocol(endpoint.listener_name), 0),
            )
            for endpoint in broker.node.parsed_endpoints()
        ],
        rack=broker.node.rack if isinstance(broker.node.rack, str) else None,
    )
