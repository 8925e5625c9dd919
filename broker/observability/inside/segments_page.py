"""The segments of a partition on this broker's disks, and why retention keeps each of them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from ottla.broker.replication.partitions import Partitions
from ottla.broker.storage.log import Log
from ottla.broker.storage.maintenance.retention import Kept, kept_segments
from ottla.broker.storage.segment import CORRUPT, Segment
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.records import NO_TIMESTAMP

_SHOWN_MAX: Final = 1_000
# Of so many segments the first batch is read, which needs their files.
_READ_MAX: Final = 50


class SegmentsPage:
    """What `/inside/v1/segments/<topic>/<partition>` shows: the oldest segments first."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

    def __call__(self, subject: str) -> dict[str, Any] | None:
        """Return the page of a partition; None if this broker has no replica of it."""
        topic, _, number = subject.rpartition("/")
        if not topic or not number.isdigit():
            return None
        partition = TopicPartition(topic, int(number))
        log = self._partitions.logs.find(partition)
        return None if log is None else _page(log)


def _page(log: Log) -> dict[str, Any]:
    kept = kept_segments(log)
    config = log.config
    shown = kept[:_SHOWN_MAX]
    return {
        "log_start_offset": str(log.log_start_offset),
        "log_end_offset": str(log.log_end_offset),
        "high_watermark": str(log.high_watermark),
        "last_stable_offset": str(log.last_stable_offset),
        "size_bytes": str(log.size),
        "path": str(log.directory),
        "cleanup_policy": ",".join(config.cleanup_policy),
        "retention_ms": str(config.retention_ms),
        "retention_bytes": str(config.retention_bytes),
        "is_truncated": len(kept) > len(shown),
        "segments": [
            _row(each, is_last=each is kept[-1], may_read=number < _READ_MAX) for number, each in enumerate(shown)
        ],
    }


def _row(kept: Kept, *, is_last: bool, may_read: bool) -> dict[str, Any]:
    segment = kept.segment
    index_bytes = 0
    modified_ms: int | None = None
    # The segment may be deleted while the page is made.
    with suppress(OSError):
        modified_ms = segment.path.stat().st_mtime_ns // 1_000_000
        index_bytes = sum(path.stat().st_size for path in segment.paths if path != segment.path and path.exists())
    return {
        "base_offset": str(segment.base_offset),
        "next_offset": str(segment.next_offset),
        "size_bytes": str(segment.size),
        "index_bytes": str(index_bytes),
        "first_timestamp_ms": _first_timestamp(segment) if may_read else None,
        "last_timestamp_ms": None if kept.largest_timestamp == NO_TIMESTAMP else str(kept.largest_timestamp),
        "modified_ms": modified_ms,
        "is_active": is_last,
        "deleted_ms": kept.deleted_ms,
        "why_kept": kept.why,
    }


def _first_timestamp(segment: Segment) -> str | None:
    """Return the timestamp of the first batch, if it can be read."""
    with suppress(*CORRUPT, OSError, StopIteration):
        with segment.lock:
            first = segment.first_timestamp
        return None if first == NO_TIMESTAMP else str(first)
    return None
