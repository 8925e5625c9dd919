"""A cluster that is a few numbers, for tests of planning."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.pipeline.sources.options import TopicSubscription
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.list_offsets import EARLIEST, LATEST


class FakeCluster:
    """Knows the first and the next offset of each partition; the time of a record is its offset."""

    def __init__(self, logs: Mapping[TopicPartition, tuple[int, int]]) -> None:
        self.logs = dict(logs)

    def partitions(self, subscription: TopicSubscription) -> set[TopicPartition]:
        """Return the partitions that there are."""
        return {partition for partition in self.logs if subscription.matches(partition)}

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return offsets by time, or the ends."""
        return {partition: self._offset(partition, at) for partition, at in wanted.items() if partition in self.logs}

    def _offset(self, partition: TopicPartition, at: int) -> int:
        first, following = self.logs[partition]
        if at == EARLIEST:
            return first
        if at == LATEST:
            return following
        return max(first, at) if at < following else -1
