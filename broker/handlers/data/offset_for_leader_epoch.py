"""OffsetForLeaderEpoch (23), versions 0-4.

Behavior: the largest leader epoch up to the one asked for that the log knows, and where it ends; -1 and -1 where the
log knows none. Consumers find with it that their position was cut away, followers where to cut. Only the leader
answers, in the epoch that the asker knows, to both alike: `replica_id` changes nothing.
"""

from __future__ import annotations

from ottla.broker.requests.access import TOPIC, check
from ottla.broker.requests.lookup import hosted_partition
from ottla.broker.requests.request import DataRequest
from ottla.protocol.errors import KafkaError
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
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=[_answer(request, topic.topic, wanted) for wanted in topic.partitions]
            )
            for topic in body.topics
        ]
    )


def _answer(request: DataRequest, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        check(request, TOPIC, topic)
        partition = hosted_partition(request, TopicPartition(topic, wanted.partition))
        # Whoever asks cuts its log by the answer: it must not come from the follower that this leader has become.
        with partition.lock:
            partition.check_leader(wanted.current_leader_epoch)
            epoch, end_offset = partition.log.end_offset_for_epoch(wanted.leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(error_code=error.code, partition=wanted.partition)
    return EpochEndOffset(error_code=0, partition=wanted.partition, leader_epoch=epoch, end_offset=end_offset)
