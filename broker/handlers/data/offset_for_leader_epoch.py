"""OffsetForLeaderEpoch (23), versions 0-4.

Behavior: returns the largest leader epoch in the log that is not above the requested one, and its end offset; -1 and -1
if there is none. Consumers use it to detect that the log was truncated below their position, followers to find where to
truncate. Only the leader answers, and only in the epoch that the client knows. `replica_id` makes no difference.
"""

from __future__ import annotations

from ottla.broker.requests.access import TOPIC, denied
from ottla.broker.requests.request import DataRequest
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def offset_for_leader_epoch(request: DataRequest) -> OffsetForLeaderEpochResponse:
    """Look the epochs up."""
    body: OffsetForLeaderEpochRequest = request.body
    hidden = denied(request, TOPIC, {topic.topic for topic in body.topics})
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_refused(wanted) for wanted in topic.partitions]
                if topic.topic in hidden
                else [_answer(request, topic.topic, wanted) for wanted in topic.partitions],
            )
            for topic in body.topics
        ]
    )


def _refused(wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    return EpochEndOffset(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, partition=wanted.partition)


def _answer(request: DataRequest, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = request.services.partitions.get(TopicPartition(topic, wanted.partition))
        # The client truncates by this answer, so it must not come from a leader that has become a follower.
        with partition.lock:
            partition.check_leader(wanted.current_leader_epoch)
            epoch, end_offset = partition.log.end_offset_for_epoch(wanted.leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(error_code=error.code, partition=wanted.partition)
    return EpochEndOffset(error_code=0, partition=wanted.partition, leader_epoch=epoch, end_offset=end_offset)
