"""AlterReplicaLogDirs (34), versions 0-2.

Behavior: moves replicas of this broker to other directories of `log.dirs`. The response says whether a move was
started; DescribeLogDirs shows its progress. A request for the replica's current directory cancels a move; a request for
another one replaces it. Errors of a partition: LOG_DIR_NOT_FOUND; KAFKA_STORAGE_ERROR while any directory is offline;
INVALID_TOPIC_EXCEPTION if the topic's name is too long for a future log; UNKNOWN_TOPIC_OR_PARTITION; and
REPLICA_NOT_AVAILABLE if only other brokers have the partition. In that case its log will be created in the directory
when this broker gets a replica. If a partition is named twice, the last directory counts.
"""

from __future__ import annotations

import structlog

from ottla.broker.requests.request import AdminRequest
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

log = structlog.get_logger(__name__)


def alter_replica_log_dirs(request: AdminRequest) -> AlterReplicaLogDirsResponse:
    """Start to move replicas."""
    body: AlterReplicaLogDirsRequest = request.body
    wanted = {
        TopicPartition(topic.name, index): directory.path
        for directory in body.dirs
        for topic in directory.topics
        for index in topic.partitions
    }
    topics: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for partition, path in wanted.items():
        code = _move(request, partition, path)
        result = AlterReplicaLogDirPartitionResult(partition_index=partition.partition, error_code=code)
        topics.setdefault(partition.topic, []).append(result)
    return AlterReplicaLogDirsResponse(
        throttle_time_ms=0,
        results=[AlterReplicaLogDirTopicResult(topic_name=name, partitions=rows) for name, rows in topics.items()],
    )


def _move(request: AdminRequest, partition: TopicPartition, path: str) -> ErrorCode:
    try:
        request.services.log_dir_moves.move(partition, path)
    except KafkaError as error:
        log.info("replica_not_moved", partition=str(partition), directory=path, error=str(error))
        is_elsewhere = error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.REPLICA_NOT_AVAILABLE if is_elsewhere else error.code
    return ErrorCode.NONE
