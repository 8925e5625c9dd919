"""What this broker knows about the cluster: live brokers, topics, leaders.

The controller sends it in UpdateMetadata requests. Each request makes a new snapshot, which replaces the previous one
as a whole. Readers take the snapshot once and need no lock. Both snapshots share what the request does not mention.

A broker without a registration gets no more updates, and would keep naming itself and the partitions that it led. So it
removes itself from the snapshot as soon as it knows, and clients ask other brokers. The controller's next request adds
it again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.update_metadata import (
    LEADER_DURING_DELETE,
    SECURITY_PROTOCOLS,
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
)
from ottla.protocol.primitives import UUID_ZERO

# The type of a request that replaces all topics.
_FULL: Final = 2


class BrokerEndpoint(Struct, frozen=True):
    """The address of one listener of a broker; the security protocol is its number on the wire."""

    host: str
    port: int
    security_protocol: int


class LiveBroker(Struct, frozen=True):
    """A broker that is registered."""

    id: int
    rack: str | None
    endpoints: Mapping[str, BrokerEndpoint]


class PartitionMetadata(Struct, frozen=True):
    """Leader and replicas of a partition; the leader is -1 if there is none."""

    index: int
    leader: int
    leader_epoch: int
    isr: Sequence[int]
    replicas: Sequence[int]
    offline_replicas: Sequence[int]
    # Version of the partition's state node.
    partition_epoch: int


class TopicMetadata(Struct, frozen=True):
    """A topic with its partitions by index; the id is all zeros in a cluster that has none."""

    name: str
    id: bytes
    partitions: Mapping[int, PartitionMetadata]


class MetadataSnapshot(Struct, frozen=True):
    """The cluster at one moment. Immutable."""

    controller_id: int = -1
    controller_epoch: int = -1
    brokers: Mapping[int, LiveBroker] = field(default_factory=dict)
    topics: Mapping[str, TopicMetadata] = field(default_factory=dict)
    topic_names: Mapping[bytes, str] = field(default_factory=dict)

    def topic(self, name: str) -> TopicMetadata | None:
        """Find a topic by its name."""
        return self.topics.get(name)

    def topic_by_id(self, topic_id: bytes) -> TopicMetadata | None:
        """Find a topic by its id."""
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def partition(self, topic: str, index: int) -> PartitionMetadata | None:
        """Find a partition."""
        found = self.topics.get(topic)
        return None if found is None else found.partitions.get(index)

    def endpoint(self, broker_id: int, listener: str) -> BrokerEndpoint | None:
        """Return the address of a broker's listener; None if the broker is not alive or has no such listener."""
        broker = self.brokers.get(broker_id)
        return None if broker is None else broker.endpoints.get(listener)

    def brokers_with(self, listener: str) -> Iterator[tuple[LiveBroker, BrokerEndpoint]]:
        """Return the live brokers that have a listener, with its addresses."""
        for broker in self.brokers.values():
            endpoint = broker.endpoints.get(listener)
            if endpoint is not None:
                yield broker, endpoint


class MetadataCache:
    """Holds the newest snapshot. Any thread may read; one thread at a time updates."""

    def __init__(self, broker_id: int = -1) -> None:
        """`broker_id` is the id of this broker."""
        self._broker_id = broker_id
        # Whether this broker has just started, and may hear of the cluster at any moment. The server ends that.
        self.is_starting = True
        self._snapshot = MetadataSnapshot()
        self._updating = threading.Lock()

    def __repr__(self) -> str:
        snapshot = self._snapshot
        return f"<MetadataCache brokers={len(snapshot.brokers)} topics={len(snapshot.topics)}>"

    @property
    def snapshot(self) -> MetadataSnapshot:
        """The newest snapshot."""
        return self._snapshot

    def update(self, request: UpdateMetadataRequest) -> list[TopicPartition]:
        """Apply a request of the controller; return the partitions that were deleted.

        The caller has checked that it comes from the newest controller.
        """
        with self._updating:
            before = self._snapshot
            topics = {} if request.type == _FULL else dict(before.topics)
            deleted = _apply(topics, request)
            if request.type == _FULL:
                deleted += [
                    TopicPartition(topic.name, index)
                    for topic in before.topics.values()
                    for index in topic.partitions
                    if topic.name not in topics
                ]
            names = before.topic_names
            if deleted or _touches_ids(request, before):
                names = {topic.id: topic.name for topic in topics.values() if topic.id != UUID_ZERO}
            self._snapshot = MetadataSnapshot(
                controller_id=request.controller_id,
                controller_epoch=request.controller_epoch,
                brokers={broker.id: _live_broker(broker) for broker in request.live_brokers},
                topics=topics,
                topic_names=names,
            )
        return deleted

    def session_expired(self) -> None:
        """Remove this broker from the live ones, because its registration is gone."""
        with self._updating:
            before = self._snapshot
            if self._broker_id in before.brokers:
                others = {broker.id: broker for broker in before.brokers.values() if broker.id != self._broker_id}
                self._snapshot = replace(before, brokers=others)

    def session_renewed(self) -> None:
        """Do nothing: the controller's next request adds this broker again."""


def _apply(topics: dict[str, TopicMetadata], request: UpdateMetadataRequest) -> list[TopicPartition]:
    """Return the topics with the partitions of a request applied; only topics in the request are copied."""
    deleted: list[TopicPartition] = []
    for name, topic_id, states in _by_topic(request):
        known = topics.get(name)
        # Another id means a new topic of the same name, so nothing is known of it yet.
        is_same = known is not None and topic_id in (UUID_ZERO, known.id)
        partitions = dict(known.partitions) if known is not None and is_same else {}
        for state in states:
            if state.leader == LEADER_DURING_DELETE:
                if partitions.pop(state.partition_index, None) is not None:
                    deleted.append(TopicPartition(name, state.partition_index))
            else:
                partitions[state.partition_index] = _partition(state)
        if partitions:
            own_id = known.id if known is not None and is_same else topic_id
            topics[name] = TopicMetadata(name, own_id, partitions)
        else:
            topics.pop(name, None)
    return deleted


def _by_topic(
    request: UpdateMetadataRequest,
) -> Iterable[tuple[str, bytes, Sequence[UpdateMetadataPartitionState]]]:
    """Yield the partitions topic by topic; before version 5 they come in a flat list."""
    for topic in request.topic_states:
        yield topic.topic_name, topic.topic_id, topic.partition_states
    ungrouped: dict[str, list[UpdateMetadataPartitionState]] = {}
    for state in request.ungrouped_partition_states:
        ungrouped.setdefault(state.topic_name, []).append(state)
    for name, states in ungrouped.items():
        yield name, UUID_ZERO, states


def _touches_ids(request: UpdateMetadataRequest, before: MetadataSnapshot) -> bool:
    return request.type == _FULL or any(
        before.topic_names.get(topic.topic_id) != topic.topic_name for topic in request.topic_states
    )


def _partition(state: UpdateMetadataPartitionState) -> PartitionMetadata:
    return PartitionMetadata(
        index=state.partition_index,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=state.isr,
        replicas=state.replicas,
        offline_replicas=state.offline_replicas,
        partition_epoch=state.zk_version,
    )


def _live_broker(broker: UpdateMetadataBroker) -> LiveBroker:
    # Before version 3, a listener had no name besides its protocol; before version 1, there was only one.
    endpoints = {
        endpoint.listener or SECURITY_PROTOCOLS.get(endpoint.security_protocol, ""): BrokerEndpoint(
            endpoint.host, endpoint.port, endpoint.security_protocol
        )
        for endpoint in broker.endpoints
    }
    if not endpoints and broker.v0_host:
        endpoints[SECURITY_PROTOCOLS[0]] = BrokerEndpoint(broker.v0_host, broker.v0_port, 0)
    return LiveBroker(broker.id, broker.rack or None, endpoints)
