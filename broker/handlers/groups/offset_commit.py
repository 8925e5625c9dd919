"""OffsetCommit (8), versions 0-9.

Behavior: writes the offsets of one request as one batch, and responds when all in-sync replicas have it. A member must
be in the group's current generation. A simple consumer (generation -1) may commit while the group has no members. Each
partition has its own error: UNKNOWN_TOPIC_OR_PARTITION if it does not exist, OFFSET_METADATA_TOO_LARGE if the metadata
is longer than `offset.metadata.max.bytes` characters. All others get the error of the group or of the write.

Version notes: version 0 once stored offsets in ZooKeeper; here it is like the others. 1 adds the commit timestamp, 2 to
4 have the retention time, 6 adds the leader epoch, 7 static members. In 9 the generation may be the member epoch of a
group of the new protocol.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from ottla.broker.groups.offsets.group_offsets import Committer
from ottla.broker.groups.offsets.offset_store import CommittedOffset
from ottla.broker.requests.access import GROUP, allows
from ottla.broker.requests.coordinator_wait import when_ready
from ottla.broker.requests.offset_checks import checked_offsets
from ottla.broker.requests.request import Delayed, GroupsRequest, Respond
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.message import Message
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.protocol.records import NO_TIMESTAMP

_COMMIT_TIME_VERSION: Final = 1
_LATEST_MS: Final = 2**63 - 1


def offset_commit(request: GroupsRequest) -> Message | Delayed:
    """Store offsets of a group."""
    if not allows(request, GROUP, request.body.group_id):
        return _response(request.body, {}, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return when_ready(request, [request.body.group_id], _Committing)


class _Committing:
    """Responds when the offsets are committed."""

    def __init__(self, request: GroupsRequest) -> None:
        self._request = request

    def then(self, respond: Respond) -> None:
        """Commit, and respond when that is done."""
        request = self._request
        body: OffsetCommitRequest = request.body
        offsets, refused = checked_offsets(request, partial(_committed, request))
        committer = Committer(body.member_id, body.group_instance_id, body.generation_id_or_member_epoch)

        def done(error: ErrorCode) -> None:
            respond(lambda: _response(body, refused, error))

        try:
            request.services.group_offsets.commit(body.group_id, committer, offsets, done)
        except KafkaError as error:
            done(error.code)


def _committed(request: GroupsRequest, row: OffsetCommitRequestPartition) -> CommittedOffset:
    now_ms = request.services.clock()
    retention_ms = request.body.retention_time_ms
    has_time = request.version == _COMMIT_TIME_VERSION and row.commit_timestamp != NO_TIMESTAMP
    return CommittedOffset(
        row.committed_offset,
        row.committed_leader_epoch,
        row.committed_metadata or "",
        row.commit_timestamp if has_time else now_ms,
        min(now_ms + retention_ms, _LATEST_MS) if retention_ms >= 0 else NO_TIMESTAMP,
    )


def _response(
    body: OffsetCommitRequest, refused: dict[TopicPartition, ErrorCode], error: ErrorCode
) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=row.partition_index,
                        error_code=refused.get(TopicPartition(topic.name, row.partition_index), error),
                    )
                    for row in topic.partitions
                ],
            )
            for topic in body.topics
        ]
    )
