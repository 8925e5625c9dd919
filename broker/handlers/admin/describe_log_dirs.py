"""DescribeLogDirs (35), versions 0-4.

Behavior: each log directory with its partitions and their sizes; one that is offline has KAFKA_STORAGE_ERROR and no
partitions. Without topics all partitions are listed. Version 4 adds the size of the disk and what is free of it.
"""

from __future__ import annotations

import os

from ottla.broker.requests.request import Request
from ottla.broker.storage.log import Log
from ottla.broker.storage.log_dir import LogDir
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


def describe_log_dirs(request: Request) -> DescribeLogDirsResponse:
    """List directories, partitions and sizes."""
    body: DescribeLogDirsRequest = request.body
    wanted = None
    if body.topics is not None:
        wanted = {(topic.topic, partition) for topic in body.topics for partition in topic.partitions}
    logs = request.services.partitions.logs
    return DescribeLogDirsResponse(
        throttle_time_ms=0, results=[_result(log_dir, logs.in_dir(log_dir), wanted) for log_dir in logs.dirs]
    )


def _result(log_dir: LogDir, logs: list[Log], wanted: set[tuple[str, int]] | None) -> DescribeLogDirsResult:
    if not log_dir.is_online:
        return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=str(log_dir.path), topics=[])
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for log in logs:
        if wanted is None or tuple(log.partition) in wanted:
            topics.setdefault(log.partition.topic, []).append(
                DescribeLogDirsPartition(
                    partition_index=log.partition.partition,
                    partition_size=log.size,
                    offset_lag=max(0, log.high_watermark - log.log_end_offset),
                    is_future_key=False,
                )
            )
    disk = os.statvfs(log_dir.path)
    return DescribeLogDirsResult(
        error_code=0,
        log_dir=str(log_dir.path),
        topics=[DescribeLogDirsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
        total_bytes=disk.f_frsize * disk.f_blocks,
        usable_bytes=disk.f_frsize * disk.f_bavail,
    )
