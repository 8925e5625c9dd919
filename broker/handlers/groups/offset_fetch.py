"""OffsetFetch (9), versions 0-9.

Behavior: returns the committed offsets of groups, for the listed partitions or, if the list is null, for all. A
partition without a committed offset has offset -1 and no error. With require-stable, a partition whose offset an open
transaction may change is UNSTABLE_OFFSET_COMMIT.

Version notes: errors of the group are in each partition before version 2, at the top of the response from 2 on, and in
each group from 8 on, which asks for several groups. 5 adds leader epochs, 7 require-stable, 9 the member of a group of
the new protocol.

Our own clients may ask, in a tagged field, since when each group has been at its offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Final

from ottla.broker.groups.offsets.group_offsets import FetchedOffset
from ottla.broker.groups.offsets.offset_store import CommittedOffset
from ottla.broker.requests.access import GROUP, TOPIC, denied
from ottla.broker.requests.coordinator_wait import when_ready
from ottla.broker.requests.request import Delayed, GroupsRequest
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.message import Message
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ottla.protocol.records import NO_TIMESTAMP

_ERROR_VERSION: Final = 2
_SEVERAL_GROUPS_VERSION: Final = 8
_HIDDEN_GROUP: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
_HIDDEN_TOPIC: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_NOTHING: Final = CommittedOffset(-1, -1, "", -1)


def offset_fetch(request: GroupsRequest) -> Message | Delayed:
    """Return the committed offsets of groups."""
    body: OffsetFetchRequest = request.body
    group_ids = {body.group_id}
    if request.version >= _SEVERAL_GROUPS_VERSION:
        group_ids = {group.group_id for group in body.groups}
    hidden = denied(request, GROUP, group_ids)
    return when_ready(request, group_ids - hidden, lambda ready: _answer(ready, hidden))


def _answer(request: GroupsRequest, hidden: Set[str]) -> OffsetFetchResponse:
    body: OffsetFetchRequest = request.body
    if request.version >= _SEVERAL_GROUPS_VERSION:
        return OffsetFetchResponse(groups=[_group(request, group, hidden) for group in body.groups])
    topics = None
    if body.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=each.name, partition_indexes=each.partition_indexes) for each in body.topics
        ]
    answer = _group(request, OffsetFetchRequestGroup(group_id=body.group_id, topics=topics), hidden)
    if answer.error_code and request.version < _ERROR_VERSION:
        found = _failed(topics or [], ErrorCode.of(answer.error_code))
        answer = OffsetFetchResponseGroup(group_id=body.group_id, topics=_topics(found))
    return OffsetFetchResponse(
        error_code=answer.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=row.partition_index,
                        committed_offset=row.committed_offset,
                        committed_leader_epoch=row.committed_leader_epoch,
                        metadata=row.metadata,
                        error_code=row.error_code,
                    )
                    for row in topic.partitions
                ],
            )
            for topic in answer.topics
        ],
    )


def _group(request: GroupsRequest, group: OffsetFetchRequestGroup, hidden_groups: Set[str]) -> OffsetFetchResponseGroup:
    """Answer for one group. If all topics are requested, those that the client may not describe are left out."""
    if group.group_id in hidden_groups:
        return OffsetFetchResponseGroup(group_id=group.group_id, topics=[], error_code=_HIDDEN_GROUP)
    partitions, refused = None, {}
    try:
        if group.topics is not None:
            hidden = denied(request, TOPIC, (topic.name for topic in group.topics))
            partitions = _partitions(topic for topic in group.topics if topic.name not in hidden)
            refused = _failed((topic for topic in group.topics if topic.name in hidden), _HIDDEN_TOPIC)
        found = request.services.group_offsets.fetch(
            group.group_id,
            partitions,
            require_stable=request.body.require_stable,
            member_id=group.member_id,
            member_epoch=group.member_epoch,
        )
    except KafkaError as error:
        return OffsetFetchResponseGroup(group_id=group.group_id, topics=[], error_code=error.code)
    if partitions is None:
        hidden = denied(request, TOPIC, {partition.topic for partition in found}, log_if_denied=False)
        found = {partition: offset for partition, offset in found.items() if partition.topic not in hidden}
    topics = _topics({**found, **refused}, with_moved_timestamps=request.body.with_moved_timestamps)
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)


def _partitions(topics: Iterable[OffsetFetchRequestTopics]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in topics for index in topic.partition_indexes]


def _failed(topics: Iterable[OffsetFetchRequestTopics], error: ErrorCode) -> dict[TopicPartition, FetchedOffset]:
    return dict.fromkeys(_partitions(topics), FetchedOffset(None, error))


def _topics(
    found: Mapping[TopicPartition, FetchedOffset], *, with_moved_timestamps: bool = False
) -> list[OffsetFetchResponseTopics]:
    by_topic: dict[str, list[OffsetFetchResponsePartitions]] = {}
    for partition, (known, error) in found.items():
        committed = known or _NOTHING
        by_topic.setdefault(partition.topic, []).append(
            OffsetFetchResponsePartitions(
                partition_index=partition.partition,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                metadata=committed.metadata,
                error_code=error,
                moved_timestamp=committed.moved_timestamp_ms if with_moved_timestamps else NO_TIMESTAMP,
            )
        )
    return [OffsetFetchResponseTopics(name=topic, partitions=rows) for topic, rows in by_topic.items()]
