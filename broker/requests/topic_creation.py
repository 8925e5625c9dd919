"""Creating topics, on an administrator's request or because a client uses one that is missing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import structlog

from ottla.broker.cluster.metadata import MetadataSnapshot
from ottla.broker.cluster.topics import TopicCreation, TopicSpec
from ottla.broker.config import BrokerConfig
from ottla.broker.coordination.placement import CONSUMER_OFFSETS
from ottla.broker.requests.audited import note_change
from ottla.broker.requests.request import GroupsRequest, TopicsRequest
from ottla.broker.security.audit.audit_topic import audit_topic
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import AUDIT_TOPIC, INTERNAL_TOPICS

TOO_MANY_PARTITIONS: Final = "one request cannot create so many partitions: see ottla.topic.max.partitions"

log = structlog.get_logger(__name__)


def create_topic(
    request: TopicsRequest | GroupsRequest, topic: TopicSpec, *, validate_only: bool = False
) -> TopicCreation:
    """Create a topic and note it, with a warning if its name could collide with another one in metrics."""
    created = request.services.cluster.create_topic(topic, validate_only=validate_only)
    if not validate_only:
        change = {
            "partitions": (None, len(created.assignment)),
            "replication_factor": (None, created.replication_factor),
            "options": {name: (None, value) for name, value in topic.configs.items()},
        }
        note_change(request, "topic_created", f"Topic:{created.name}", change)
        if topic.name not in INTERNAL_TOPICS and ("." in topic.name or "_" in topic.name):
            log.warning(
                "topic_name_may_collide",
                topic=topic.name,
                reason="metric names replace both dots and underscores by underscores; use only one of them",
            )
    return created


def fits_in_request(request: TopicsRequest, counts: Iterable[int]) -> bool:
    """Whether one request may create partitions in these numbers, by topic.

    A topic that is too large by itself is refused by itself. The others do not suffer for it.
    """
    limit = request.services.config().ottla_topic_max_partitions
    return sum(count for count in counts if 0 < count <= limit) <= limit


def create_missing_topic(request: TopicsRequest | GroupsRequest, name: str) -> ErrorCode:
    """Create a missing topic that a client uses; return the error code for the client.

    LEADER_NOT_AVAILABLE makes the client retry until there are leaders. It is also right if somebody else has created
    the topic meanwhile, if ZooKeeper did not answer in time, or if this broker has just started and knows no brokers
    yet.
    """
    services = request.services
    if not services.metadata.snapshot.brokers:
        return ErrorCode.LEADER_NOT_AVAILABLE
    topic = TopicSpec(name)
    if name in INTERNAL_TOPICS:
        topic = internal_topic(services.config(), name, known_brokers(services.metadata.snapshot))
    try:
        create_topic(request, topic)
    except KafkaError as error:
        if error.code not in (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.REQUEST_TIMED_OUT):
            log.info("topic_not_created", topic=name, reason=str(error))
            return error.code
    return ErrorCode.LEADER_NOT_AVAILABLE


def known_brokers(snapshot: MetadataSnapshot) -> int:
    """Return the number of brokers: those that are alive, and those that are away but have replicas."""
    placed = {
        replica
        for topic in snapshot.topics.values()
        for partition in topic.partitions.values()
        for replica in partition.replicas
    }
    return len(placed.union(snapshot.brokers))


def internal_topic(config: BrokerConfig, name: str, brokers: int) -> TopicSpec:
    """Return the spec of an internal topic, for a cluster of `brokers` brokers.

    A cluster that is smaller than the replication factor gets as many replicas as it has brokers, and the transaction
    log gets no higher `min.insync.replicas`. So a single broker serves groups and transactions without settings. While
    brokers are away, they still count, so the creation fails until they are back.
    """
    if name == AUDIT_TOPIC:
        return audit_topic(brokers)
    if name == CONSUMER_OFFSETS:
        wanted, partitions = config.offsets_topic_replication_factor, config.offsets_topic_num_partitions
        options = {
            "compression.type": "producer",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        }
    else:
        wanted, partitions = (
            config.transaction_state_log_replication_factor,
            config.transaction_state_log_num_partitions,
        )
        options = {
            "compression.type": "uncompressed",
            "min.insync.replicas": str(min(config.transaction_state_log_min_isr, wanted, max(brokers, 1))),
            "segment.bytes": str(config.transaction_state_log_segment_bytes),
            "unclean.leader.election.enable": "false",
        }
    replicas = min(wanted, max(brokers, 1))
    if replicas < wanted:
        log.warning("internal_topic_with_fewer_replicas", topic=name, wanted=wanted, replicas=replicas)
    return TopicSpec(name, partitions, replicas, configs={"cleanup.policy": "compact", **options})
