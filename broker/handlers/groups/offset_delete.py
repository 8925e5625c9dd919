"""OffsetDelete (47), version 0.

Behavior: deletes offsets of a group. While consumers are in the group, the offsets of the topics that they read stay:
GROUP_SUBSCRIBED_TO_TOPIC. If the members are not consumers, all offsets stay: NON_EMPTY_GROUP. A partition that does
not exist is UNKNOWN_TOPIC_OR_PARTITION; a group that does not exist is GROUP_ID_NOT_FOUND. A group without members is
deleted with its last offset.
"""

from __future__ import annotations

from ottla.broker.requests.access import TOPIC, denied
from ottla.broker.requests.request import GroupsRequest
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def offset_delete(request: GroupsRequest) -> OffsetDeleteResponse:
    """Delete offsets of a group."""
    body: OffsetDeleteRequest = request.body
    snapshot = request.services.metadata.snapshot
    asked = [TopicPartition(topic.name, row.partition_index) for topic in body.topics for row in topic.partitions]
    hidden = denied(request, TOPIC, (topic.name for topic in body.topics))
    known = [
        partition for partition in asked if partition.topic not in hidden and snapshot.partition(*partition) is not None
    ]
    try:
        errors = request.services.group_offsets.delete(body.group_id, known)
    except KafkaError as error:
        return OffsetDeleteResponse(error_code=error.code, throttle_time_ms=0, topics=[])
    by_topic: dict[str, list[OffsetDeleteResponsePartition]] = {}
    for partition in asked:
        code = errors.get(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if partition.topic in hidden:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        by_topic.setdefault(partition.topic, []).append(
            OffsetDeleteResponsePartition(partition_index=partition.partition, error_code=code)
        )
    return OffsetDeleteResponse(
        error_code=ErrorCode.NONE,
        throttle_time_ms=0,
        topics=[OffsetDeleteResponseTopic(name=topic, partitions=rows) for topic, rows in by_topic.items()],
    )
