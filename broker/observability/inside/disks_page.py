"""The disks of this broker: how much is free, what is refused for want of space, and what cannot be deleted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from ottla.broker.replication.partitions import Partitions
from ottla.broker.storage.log_dir import LogDir
from ottla.broker.storage.maintenance.stuck_segments import Holder, StuckSegment
from ottla.broker.storage.maintenance.topic_sizes import largest_topics

_TOPICS_MAX: Final = 10


class DisksPage:
    """What `/inside/v1/disks` shows."""

    def __init__(self, partitions: Partitions, stuck: Callable[[], Sequence[StuckSegment]]) -> None:
        self._partitions = partitions
        self._stuck = stuck

    def __call__(self, subject: str) -> dict[str, Any] | None:
        """Return the page; there is only one."""
        if subject:
            return None
        return {
            "directories": [self._directory(log_dir) for log_dir in self._partitions.logs.dirs],
            "stuck_segments": [self._segment(each) for each in self._stuck()],
        }

    def _directory(self, log_dir: LogDir) -> dict[str, Any]:
        largest = largest_topics(self._partitions.logs, log_dir)[:_TOPICS_MAX]
        return {
            "path": str(log_dir.path),
            "is_online": log_dir.is_online,
            "free_bytes": str(log_dir.free_bytes),
            "total_bytes": str(log_dir.total_bytes),
            "watermark_bytes": str(log_dir.watermark_bytes),
            "space_level": log_dir.space_level.name.lower(),
            "refusal": log_dir.coordinator_refusal or log_dir.copy_refusal or log_dir.client_refusal,
            "largest_topics": [
                {"topic": each.topic, "size_bytes": str(each.size_bytes), "kept": each.kept} for each in largest
            ],
        }

    def _segment(self, stuck: StuckSegment) -> dict[str, Any]:
        return {
            "topic": stuck.partition.topic,
            "partition": stuck.partition.partition,
            "path": str(stuck.path),
            "base_offset": str(stuck.base_offset),
            "next_offset": str(stuck.next_offset),
            "held_bytes": str(stuck.held_bytes),
            "holder": stuck.holder.value,
            "value": str(stuck.value),
            "lagging_brokers": self._lagging(stuck),
        }

    def _lagging(self, stuck: StuckSegment) -> list[int]:
        """Return the brokers in the ISR that lack records of the segment; none if another broker leads."""
        partition = self._partitions.find(stuck.partition)
        if stuck.holder is not Holder.LAGGING_FOLLOWER or partition is None:
            return []
        isr = partition.isr
        return sorted(
            broker
            for broker, replica in partition.follower_positions().items()
            if broker in isr and replica.log_end_offset < stuck.next_offset
        )
