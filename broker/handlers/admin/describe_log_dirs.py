"""DescribeLogDirs (35), versions 0-4.

Behavior: returns each log directory with its partitions and their sizes. An offline directory has KAFKA_STORAGE_ERROR
and no partitions. A replica that is being moved is listed twice: the target directory shows it with `is_future_key` and
its lag. Without topics in the request, all partitions are listed. Version 4 adds the total and free bytes of the disk.
"""

from __future__ import annotations

from ottla.broker.requests.request import AdminRequest
from ottla.broker.storage.log import Log
from ottla.broker.storage.log_dir import LogDir
from ottla.broker.storage.log_moves import lag_of
from ottla.broker.storage.logs import Logs
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

# The lag of a future log whose current log cannot be used.
_UNKNOWN_LAG = -1


def describe_log_dirs(request: AdminRequest) -> DescribeLogDirsResponse:
    """List directories, partitions and sizes."""
    body: DescribeLogDirsRequest = request.body
    wanted = None
    if body.topics is not None:
        wanted = {(topic.topic, partition) for topic in body.topics for partition in topic.partitions}
    logs = request.services.partitions.logs
    return DescribeLogDirsResponse(
        throttle_time_ms=0, results=[_result(logs, log_dir, wanted) for log_dir in logs.dirs]
    )


def _result(logs: Logs, log_dir: LogDir, wanted: set[tuple[str, int]] | None) -> DescribeLogDirsResult:
    if not log_dir.is_online:
        return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=str(log_dir.path), topics=[])
    topics: dict[str, list[DescribeLogDirsPartition]] = {}

    def add(log: Log, lag: int, *, is_future: bool) -> None:
        if wanted is None or tuple(log.partition) in wanted:
            row = DescribeLogDirsPartition(
                partition_index=log.partition.partition,
                partition_size=log.size,
                offset_lag=lag,
                is_future_key=is_future,
            )
            topics.setdefault(log.partition.topic, []).append(row)

    for log in logs.in_dir(log_dir):
        add(log, max(0, log.high_watermark - log.log_end_offset), is_future=False)
    for future in logs.futures_in(log_dir):
        lag = lag_of(logs, future)
        add(future, _UNKNOWN_LAG if lag is None else lag, is_future=True)
    return DescribeLogDirsResult(
        error_code=0,
        log_dir=str(log_dir.path),
        topics=[DescribeLogDirsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
        total_bytes=log_dir.total_bytes,
        usable_bytes=log_dir.free_bytes,
    )
