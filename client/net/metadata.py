"""An immutable snapshot of the cluster metadata; each Metadata response makes a new one.

The classes are named tuples, because those are defined in a tenth of the time that frozen dataclasses take, and every
command of the command line waits for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.primitives import UUID_ZERO

_NAMES_MAX: Final = 10
_NONE: Final[Mapping[Any, Any]] = MappingProxyType({})


class BrokerAddress(NamedTuple):
    """A broker and where it listens."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class PartitionInfo(NamedTuple):
    """The leader and the replicas of a partition; `leader` is None while there is none."""

    partition: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()
    error: ErrorCode = ErrorCode.NONE


class TopicInfo(NamedTuple):
    """A topic and its partitions by number; a topic with an error may have none."""

    name: str
    topic_id: bytes = UUID_ZERO
    is_internal: bool = False
    partitions: Mapping[int, PartitionInfo] = _NONE
    error: ErrorCode = ErrorCode.NONE
    authorized_operations: int | None = None


class ClusterMetadata(NamedTuple):
    """Brokers and topics at one time. It has only topics that were asked for."""

    cluster_id: str | None = None
    controller_id: int | None = None
    brokers: Mapping[int, BrokerAddress] = _NONE
    topics: Mapping[str, TopicInfo] = _NONE

    def partition(self, partition: TopicPartition) -> PartitionInfo | None:
        """Return the metadata of a partition."""
        topic = self.topics.get(partition.topic)
        return None if topic is None else topic.partitions.get(partition.partition)

    def leader(self, partition: TopicPartition) -> int | None:
        """Return the node id of a partition's leader, as far as we know."""
        known = self.partition(partition)
        return None if known is None else known.leader

    def partitions_for(self, topic: str) -> set[int] | None:
        """Return the partitions of a topic; None if the topic is unknown."""
        known = self.topics.get(topic)
        return None if known is None or not known.partitions else set(known.partitions)

    def merged(self, response: Any) -> ClusterMetadata:
        """Return the snapshot with a response applied: its topics replace ours, other topics stay.

        A partition keeps our metadata if the response has an older leader epoch: another broker had newer metadata.
        """
        topics = dict(self.topics)
        for row in response.topics:
            if row.name is not None:
                topics[row.name] = _topic(row, self.topics.get(row.name))
        return ClusterMetadata(
            cluster_id=response.cluster_id or self.cluster_id,
            controller_id=None if response.controller_id < 0 else response.controller_id,
            brokers=MappingProxyType(
                {row.node_id: BrokerAddress(row.node_id, row.host, row.port, row.rack) for row in response.brokers}
            ),
            topics=MappingProxyType(topics),
        )

    def without(self, topics: set[str]) -> ClusterMetadata:
        """Return the snapshot without some topics."""
        kept = {name: topic for name, topic in self.topics.items() if name not in topics}
        return self._replace(topics=MappingProxyType(kept))

    def with_brokers(self, brokers: Mapping[int, BrokerAddress]) -> ClusterMetadata:
        """Return the snapshot with brokers from another response; the same snapshot if none of them is new."""
        news = {
            node_id: told
            for node_id, told in brokers.items()
            if (known := self.brokers.get(node_id)) is None or (known.host, known.port) != (told.host, told.port)
        }
        return self._replace(brokers=MappingProxyType({**self.brokers, **news})) if news else self

    def with_leader(self, partition: TopicPartition, leader: int, leader_epoch: int) -> ClusterMetadata:
        """Return the snapshot with another leader, if its epoch is newer than ours."""
        known = self.partition(partition)
        if known is None or known.leader_epoch >= leader_epoch:
            return self
        topic = self.topics[partition.topic]
        changed = known._replace(leader=leader, leader_epoch=leader_epoch, error=ErrorCode.NONE)
        partitions = MappingProxyType({**topic.partitions, partition.partition: changed})
        topics = {**self.topics, topic.name: topic._replace(partitions=partitions)}
        return self._replace(topics=MappingProxyType(topics))


def _topic(row: Any, known: TopicInfo | None) -> TopicInfo:
    if known is not None and known.topic_id != row.topic_id:
        known = None
    partitions = {}
    for part in row.partitions:
        made = PartitionInfo(
            part.partition_index,
            None if part.leader_id < 0 else part.leader_id,
            part.leader_epoch,
            tuple(part.replica_nodes),
            tuple(part.isr_nodes),
            tuple(part.offline_replicas),
            ErrorCode.of(part.error_code) if part.error_code else ErrorCode.NONE,
        )
        before = None if known is None else known.partitions.get(made.partition)
        # What has not changed is kept, so that there are not two copies of a large cluster.
        if before is not None and (before == made or 0 <= made.leader_epoch < before.leader_epoch):
            made = before
        partitions[made.partition] = made
    found = TopicInfo(
        row.name,
        row.topic_id,
        row.is_internal,
        MappingProxyType(dict(sorted(partitions.items())) if len(partitions) > 1 else partitions),
        ErrorCode.of(row.error_code) if row.error_code else ErrorCode.NONE,
        None if row.topic_authorized_operations == -(1 << 31) else row.topic_authorized_operations,
    )
    return known if known == found else found


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the partition numbers by topic, both in the given order."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for topic, number in partitions:
        numbers[topic].append(number)
    return dict(numbers)


def first_of(names: Sequence[str]) -> str:
    """Return names for a line of the log: the first ten, and how many more there are."""
    more = len(names) - _NAMES_MAX
    return ", ".join(names[:_NAMES_MAX]) + (f" and {more} more" if more > 0 else "")
