"""What the controller knows. Only the controller's thread uses it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from msgspec import Struct, field

from ottla.broker.cluster.znodes import BrokerNode, TopicNode
from ottla.broker.controller.partition_states import LeaderAndIsr, PartitionState, ReplicaState
from ottla.protocol.identifiers import UNKNOWN_BROKER_EPOCH, TopicPartition


class Replica(NamedTuple):
    """A replica of a partition on a broker."""

    topic: str
    partition: int
    broker: int

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)


class ReplicaAssignment(NamedTuple):
    """The replicas of a partition. During a reassignment, they include those to add and those to remove."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


class RegisteredBroker(NamedTuple):
    """A live broker: its addresses, and the epoch of its registration."""

    id: int
    epoch: int
    node: BrokerNode


def assignments_of(node: TopicNode) -> dict[int, ReplicaAssignment]:
    """Return the replicas of each partition in a topic's node."""
    return {
        index: ReplicaAssignment(
            tuple(replicas),
            tuple(node.adding_replicas.get(index, ())),
            tuple(node.removing_replicas.get(index, ())),
        )
        for index, replicas in sorted(node.partitions.items())
    }


class ControllerContext(Struct):
    """The cluster as the controller knows it, in one term."""

    controller_id: int
    epoch: int
    # Live brokers by id.
    brokers: dict[int, RegisteredBroker] = field(default_factory=dict)
    # Live brokers that are shutting down: they are told everything, and get no leadership.
    shutting_down: set[int] = field(default_factory=set)
    # Replicas of live brokers on log directories that failed.
    offline_replicas: set[Replica] = field(default_factory=set)
    topic_ids: dict[str, bytes] = field(default_factory=dict)
    assignments: dict[str, dict[int, ReplicaAssignment]] = field(default_factory=dict)
    # As in the state nodes; a partition without a node is missing here.
    leadership: dict[TopicPartition, LeaderAndIsr] = field(default_factory=dict)
    partition_states: dict[TopicPartition, PartitionState] = field(default_factory=dict)
    replica_states: dict[Replica, ReplicaState] = field(default_factory=dict)
    # Partitions that are being reassigned; their topics are not deleted before that is done.
    reassigning: set[TopicPartition] = field(default_factory=set)
    # Topics to delete, and those of them that cannot be deleted now, for example because of a replica on a dead broker.
    deleting: set[str] = field(default_factory=set)
    ineligible: set[str] = field(default_factory=set)
    # Topics to delete that can be brought back, and until when.
    kept: dict[str, int] = field(default_factory=dict)

    def partition_state(self, partition: TopicPartition) -> PartitionState:
        """Return the state of a partition."""
        return self.partition_states.get(partition, PartitionState.NON_EXISTENT)

    def replica_state(self, replica: Replica) -> ReplicaState:
        """Return the state of a replica."""
        return self.replica_states.get(replica, ReplicaState.NON_EXISTENT)

    def assignment(self, partition: TopicPartition) -> ReplicaAssignment:
        """Return the replicas of a partition; empty if it is not known."""
        return self.assignments.get(partition.topic, {}).get(partition.partition, ReplicaAssignment(()))

    @property
    def broker_epochs(self) -> dict[int, int]:
        """The epochs of the live brokers."""
        return {broker.id: broker.epoch for broker in self.brokers.values()}

    def broker_epoch(self, broker: int) -> int:
        """Return the epoch of a broker, UNKNOWN_BROKER_EPOCH if it is not registered."""
        registered = self.brokers.get(broker)
        return UNKNOWN_BROKER_EPOCH if registered is None else registered.epoch

    def is_working(self, replica: Replica) -> bool:
        """Return whether a replica's broker and disk work."""
        return replica.broker in self.brokers and replica not in self.offline_replicas

    def is_online(self, replica: Replica) -> bool:
        """Return whether a replica could lead: it works, and its broker is not shutting down."""
        return self.is_working(replica) and replica.broker not in self.shutting_down

    def online_replicas(self, partition: TopicPartition) -> list[int]:
        """Return the brokers whose replicas of a partition could lead it, in the order of the assignment."""
        return [replica.broker for replica in self.replicas([partition]) if self.is_online(replica)]

    def working_replicas(self, partition: TopicPartition) -> list[int]:
        """Return the brokers that are told about a partition, in the order of the assignment."""
        return [replica.broker for replica in self.replicas([partition]) if self.is_working(replica)]

    def partitions(self, topics: Iterable[str] | None = None) -> list[TopicPartition]:
        """Return the partitions of some topics, or of all."""
        chosen = self.assignments if topics is None else topics
        return [TopicPartition(topic, index) for topic in chosen for index in self.assignments.get(topic, ())]

    def replicas(self, partitions: Iterable[TopicPartition]) -> list[Replica]:
        """Return the replicas of some partitions."""
        return [
            Replica(partition.topic, partition.partition, broker)
            for partition in partitions
            for broker in self.assignment(partition).replicas
        ]

    def replicas_on(self, brokers: Collection[int]) -> Iterator[Replica]:
        """Return the replicas on some brokers."""
        chosen = set(brokers)
        return (replica for replica in self.replicas(self.partitions()) if replica.broker in chosen)

    def forget(self, topic: str) -> None:
        """Forget a topic."""
        for partition in self.partitions([topic]):
            self.leadership.pop(partition, None)
            self.partition_states.pop(partition, None)
            self.reassigning.discard(partition)
            for replica in self.replicas([partition]):
                self.replica_states.pop(replica, None)
                self.offline_replicas.discard(replica)
        self.assignments.pop(topic, None)
        self.topic_ids.pop(topic, None)
        self.deleting.discard(topic)
        self.ineligible.discard(topic)
        self.kept.pop(topic, None)
