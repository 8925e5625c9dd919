"""Metadata (3), versions 0-12.

Behavior: returns the live brokers that have the listener of the request, the controller, and topics with their
partitions, from the newest snapshot. A partition without a live leader has leader -1 and LEADER_NOT_AVAILABLE. A
partition whose leader lacks the listener is LISTENER_NOT_FOUND. Each topic is listed once; unknown topics are
UNKNOWN_TOPIC_OR_PARTITION or UNKNOWN_TOPIC_ID, invalid names INVALID_TOPIC_EXCEPTION.

A broker that is starting waits for a moment until a controller has told it of the cluster. librdkafka forgets brokers
that are not named, and drops messages for topics that do not exist. A broker that still knows nothing names no broker,
and answers LEADER_NOT_AVAILABLE for topics. Later it does so at once.

A missing topic that is requested by name is created if `auto.create.topics.enable` and the request allow it. Any broker
may create it; internal topics get their own options. The topic is LEADER_NOT_AVAILABLE, so that the client asks again,
or has the error of the creation.

A topic that the client may not describe is TOPIC_AUTHORIZATION_FAILED, whether it exists or not; if all topics are
requested, it is left out. A missing topic that the client may not create is TOPIC_AUTHORIZATION_FAILED too.

Version notes: an empty list means all topics in version 0 and none later; null means all from version 1 on. Version 0
leaves out replicas that are not alive and reports REPLICA_NOT_AVAILABLE; later versions list them. Before version 4
clients cannot forbid the creation of topics. LISTENER_NOT_FOUND is sent from version 6 on, LEADER_NOT_AVAILABLE before.
Topics are found by id from version 12 on; in 10 and 11 an id, or no name, makes the whole request invalid:
INVALID_REQUEST for each topic.
"""

from __future__ import annotations

from typing import Any

from ottla.broker.cluster.metadata import MetadataSnapshot, PartitionMetadata, TopicMetadata
from ottla.broker.common.topic_names import check_topic_name
from ottla.broker.requests.access import NOT_ASKED, TOPIC, allows, cluster_operations, denied, operations
from ottla.broker.requests.metadata_wait import BROKERS, answer_when_met, has_brokers
from ottla.broker.requests.request import Delayed, TopicsRequest
from ottla.broker.requests.topic_creation import create_missing_topic
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import INTERNAL_TOPICS
from ottla.protocol.message import Message
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.primitives import UUID_ZERO

# How long a client waits for a broker that does not know the cluster: less than clients wait for an answer.
_KNOWN_MS_MAX = 2_000
_NULL_LIST_VERSION = 1
_LISTENER_NOT_FOUND_VERSION = 6
_TOPIC_ID_VERSION = 12


def metadata(request: TopicsRequest) -> Message | Delayed:
    """Describe brokers and topics, as soon as this broker knows any."""
    cache = request.services.metadata
    if cache.snapshot.brokers or not cache.is_starting:
        return _described(request)
    return answer_when_met(request, _KNOWN_MS_MAX, {BROKERS: has_brokers}, lambda late: _described(request))


def _described(request: TopicsRequest) -> MetadataResponse:
    body: MetadataRequest = request.body
    snapshot = request.services.metadata.snapshot
    view = _View(request, snapshot)
    if body.topics is None or (not body.topics and request.version < _NULL_LIST_VERSION):
        hidden = denied(request, TOPIC, snapshot.topics, log_if_denied=False)
        topics = [view.topic(topic) for name, topic in snapshot.topics.items() if name not in hidden]
    elif request.version < _TOPIC_ID_VERSION and any(_names_by_id(topic) for topic in body.topics):
        topics = [_failed(topic.name or "", ErrorCode.INVALID_REQUEST, topic.topic_id) for topic in body.topics]
    else:
        asked = {(topic.topic_id, topic.name): topic for topic in body.topics}
        topics = [_answer(request, view, topic) for topic in asked.values()]
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
            for broker, endpoint in snapshot.brokers_with(request.session.listener)
        ],
        cluster_id=request.services.cluster.id,
        controller_id=request.services.cluster.controller_id,
        topics=topics,
        cluster_authorized_operations=cluster_operations(request)
        if body.include_cluster_authorized_operations
        else NOT_ASKED,
    )


class _View:
    """A snapshot as seen on one listener, in one version."""

    __slots__ = ("_live", "_reachable", "_request", "_shows_dead", "_snapshot", "_without_listener")

    def __init__(self, request: TopicsRequest, snapshot: MetadataSnapshot) -> None:
        version = request.version
        self._request = request
        self._snapshot = snapshot
        self._live = snapshot.brokers.keys()
        self._reachable = {broker.id for broker, _ in snapshot.brokers_with(request.session.listener)}
        self._shows_dead = version >= 1
        has_code = version >= _LISTENER_NOT_FOUND_VERSION
        self._without_listener = ErrorCode.LISTENER_NOT_FOUND if has_code else ErrorCode.LEADER_NOT_AVAILABLE

    def find(self, topic: MetadataRequestTopic) -> TopicMetadata | None:
        """Find the requested topic, by its id if the request has one."""
        if topic.topic_id != UUID_ZERO:
            return self._snapshot.topic_by_id(topic.topic_id)
        return self._snapshot.topic(topic.name or "")

    def topic(self, topic: TopicMetadata) -> MetadataResponseTopic:
        """Describe a topic."""
        describe = self._partition if self._shows_dead else self._partition_of_version_0
        return MetadataResponseTopic(
            error_code=0,
            name=topic.name,
            topic_id=topic.id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=[describe(partition) for partition in topic.partitions.values()],
            topic_authorized_operations=operations(self._request, TOPIC, topic.name)
            if self._request.body.include_topic_authorized_operations
            else NOT_ASKED,
        )

    def _partition(self, partition: PartitionMetadata) -> MetadataResponsePartition:
        # The lists are the snapshot's own, which nobody changes. With copies, thousands of topics take three times as
        # long, mostly in the garbage collector.
        shared: Any = partition
        code = 0
        leader = partition.leader
        if leader not in self._reachable:
            code = self._without_listener if leader in self._live else ErrorCode.LEADER_NOT_AVAILABLE
            leader = -1
        return MetadataResponsePartition(
            error_code=code,
            partition_index=partition.index,
            leader_id=leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=shared.replicas,
            isr_nodes=shared.isr,
            offline_replicas=shared.offline_replicas,
        )

    def _partition_of_version_0(self, partition: PartitionMetadata) -> MetadataResponsePartition:
        replicas, isr = self._alive(partition.replicas), self._alive(partition.isr)
        has_leader = partition.leader in self._reachable
        code = ErrorCode.NONE if has_leader else ErrorCode.LEADER_NOT_AVAILABLE
        if has_leader and (len(replicas) < len(partition.replicas) or len(isr) < len(partition.isr)):
            code = ErrorCode.REPLICA_NOT_AVAILABLE
        return MetadataResponsePartition(
            error_code=code,
            partition_index=partition.index,
            leader_id=partition.leader if has_leader else -1,
            replica_nodes=replicas,
            isr_nodes=isr,
        )

    def _alive(self, brokers: Any) -> list[int]:
        alive = [broker for broker in brokers if broker in self._reachable]
        return alive if len(alive) < len(brokers) else brokers


def _names_by_id(topic: MetadataRequestTopic) -> bool:
    return topic.name is None or topic.topic_id != UUID_ZERO


def _answer(request: TopicsRequest, view: _View, wanted: MetadataRequestTopic) -> MetadataResponseTopic:
    topic = view.find(wanted)
    name = wanted.name if topic is None else topic.name
    if name is not None and not allows(request, TOPIC, name):
        # The name as the client gave it, so that it does not learn which topic has an id.
        return _failed(wanted.name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, wanted.topic_id)
    if topic is not None:
        return view.topic(topic)
    if wanted.topic_id != UUID_ZERO:
        return _failed(None, ErrorCode.UNKNOWN_TOPIC_ID, wanted.topic_id)
    if wanted.name is None:
        return _failed(None, ErrorCode.INVALID_REQUEST)
    return _failed(wanted.name, _missing(request, wanted.name))


def _missing(request: TopicsRequest, name: str) -> ErrorCode:
    """Return the error code for a name without a topic. Creates the topic if that is allowed."""
    try:
        check_topic_name(name)
    except KafkaError as error:
        return error.code
    if not request.services.metadata.snapshot.brokers:
        return ErrorCode.LEADER_NOT_AVAILABLE
    if request.services.config().auto_create_topics_enable and request.body.allow_auto_topic_creation:
        if not allows(request, TOPIC, name, as_api=Api.CREATE_TOPICS):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return create_missing_topic(request, name)
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _failed(name: str | None, code: ErrorCode, topic_id: bytes = UUID_ZERO) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=code, name=name, topic_id=topic_id, is_internal=name in INTERNAL_TOPICS, partitions=[]
    )
