"""DeleteRecords (21), versions 0-2.

Behavior: the log of each partition begins at the offset given (-1: the high watermark); what lies below is not served
any more, and its segments go with the next retention. Topics that are only compacted refuse with POLICY_VIOLATION,
internal ones with INVALID_TOPIC_EXCEPTION, an offset above the high watermark is OFFSET_OUT_OF_RANGE.
"""

from __future__ import annotations

from ottla.broker.cluster.topics import INTERNAL_TOPICS
from ottla.broker.handlers.access import TOPIC, check
from ottla.broker.handlers.lookup import hosted_partition
from ottla.broker.handlers.request import Request
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

_HIGH_WATERMARK = -1


def delete_records(request: Request) -> DeleteRecordsResponse:
    """Advance the log starts."""
    body: DeleteRecordsRequest = request.body
    return DeleteRecordsResponse(
        throttle_time_ms=0,
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name, partitions=[_delete(request, topic.name, wanted) for wanted in topic.partitions]
            )
            for topic in body.topics
        ],
    )


def _delete(request: Request, topic: str, wanted: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    key = TopicPartition(topic, wanted.partition_index)
    try:
        check(request, TOPIC, topic)
        if topic in INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is kept by the brokers alone")
        partition = hosted_partition(request, key)
        partition.check_leader()
        log = partition.log
        if "delete" not in log.config.cleanup_policy:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"cleanup.policy of {topic} does not allow deletion")
        with partition.lock:
            partition.check_leader()
            offset = log.high_watermark if wanted.offset == _HIGH_WATERMARK else wanted.offset
            if not 0 <= offset <= log.high_watermark:
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{offset} is above the high watermark")
            log.advance_log_start(offset)
    except KafkaError as error:
        return DeleteRecordsPartitionResult(
            partition_index=wanted.partition_index, low_watermark=-1, error_code=error.code
        )
    request.services.partitions.moved(key)
    return DeleteRecordsPartitionResult(
        partition_index=wanted.partition_index, low_watermark=log.log_start_offset, error_code=0
    )
