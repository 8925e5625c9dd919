"""Collects the messages of one event to the brokers, as structs of the protocol."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import structlog

from ottla.broker.controller.context import ControllerContext, RegisteredBroker
from ottla.broker.controller.messages.batch import BrokerBatch
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
    """The batches of the current event, by broker. Only live brokers get messages."""

    def __init__(self, context: ControllerContext, listener: str) -> None:
        """`listener` is the one that brokers use among themselves."""
        self._context = context
        self._listener = listener
        self._batches: dict[int, BrokerBatch] = {}

    def take(self) -> dict[int, BrokerBatch]:
        """Return the batches, and start with empty ones."""
        batches, self._batches = self._batches, {}
        live_brokers = [_live_broker(broker) for broker in self._context.brokers.values()]
        for batch in batches.values():
            batch.live_brokers = live_brokers
        return batches

    def add_leader_and_isr(
        self, brokers: Iterable[int], partition: TopicPartition, state: LeaderAndIsr, *, is_new: bool = False
    ) -> None:
        """Tell brokers their role in a partition, and all brokers its metadata."""
        assignment = self._context.assignment(partition)
        leader = self._live_leader(state.leader)
        for batch in self._batches_for(brokers, partition.topic):
            earlier = batch.leader_and_isr.get(partition)
            batch.leader_and_isr[partition] = LeaderAndIsrPartitionState(
                partition_index=partition.partition,
                controller_epoch=state.controller_epoch,
                leader=state.leader,
                leader_epoch=state.leader_epoch,
                isr=list(state.isr),
                partition_epoch=state.partition_epoch,
                replicas=list(assignment.replicas),
                adding_replicas=list(assignment.adding),
                removing_replicas=list(assignment.removing),
                is_new=is_new or (earlier is not None and earlier.is_new),
                leader_recovery_state=state.leader_recovery_state,
            )
            if leader is not None:
                batch.live_leaders[leader.broker_id] = leader
        self.add_metadata([partition])

    def add_metadata(self, partitions: Iterable[TopicPartition], brokers: Iterable[int] | None = None) -> None:
        """Send some brokers, or all, the metadata of some partitions. It always includes the live brokers."""
        states = self._metadata_states(partitions)
        for batch in self._batches_for(self._context.brokers if brokers is None else brokers):
            if batch.metadata is None:
                batch.metadata = {}
            batch.metadata.update(states)
            for partition in states:
                self._name_topic(batch, partition.topic)

    def add_brokers(self, brokers: Iterable[int] | None = None) -> None:
        """Send some brokers, or all, the live brokers and their addresses before anything else, because some may be
        new.
        """
        told = list(self._context.brokers if brokers is None else brokers)
        self.add_metadata([], told)
        for batch in self._batches_for(told):
            batch.are_brokers_news = True

    def add_joined(self, brokers: Iterable[int]) -> None:
        """Send brokers that may know nothing the metadata of all partitions, as they are now, before anything else."""
        states = self._metadata_states(self._context.partitions())
        topics = {partition.topic for partition in states}
        for batch in self._batches_for(brokers):
            batch.joined_metadata = states
            for topic in topics:
                self._name_topic(batch, topic)

    def add_stop_replica(self, broker: int, partition: TopicPartition, *, delete: bool) -> None:
        """Tell a broker to stop a replica, and perhaps to delete its log."""
        state = self._context.leadership.get(partition)
        if partition.topic in self._context.deleting:
            leader_epoch = EPOCH_DURING_DELETE
        else:
            leader_epoch = NO_LEADER_EPOCH if state is None else state.leader_epoch
        for batch in self._batches_for([broker], partition.topic):
            known = batch.stop.get(partition)
            batch.stop[partition] = StopReplicaPartitionState(
                partition_index=partition.partition,
                leader_epoch=leader_epoch,
                delete_partition=delete or (known is not None and known.delete_partition),
            )

    def _batches_for(self, brokers: Iterable[int], topic: str | None = None) -> list[BrokerBatch]:
        batches = []
        for broker in brokers:
            registered = self._context.brokers.get(broker)
            if registered is None:
                continue
            batch = self._batches.get(broker)
            if batch is None:
                batch = BrokerBatch(self._context.controller_id, self._context.epoch, registered.epoch)
                self._batches[broker] = batch
            if topic is not None:
                self._name_topic(batch, topic)
            batches.append(batch)
        return batches

    def _name_topic(self, batch: BrokerBatch, topic: str) -> None:
        topic_id = self._context.topic_ids.get(topic)
        if topic_id is not None:
            batch.topic_ids[topic] = topic_id

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
