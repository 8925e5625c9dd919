"""Waiting requests of partitions that note what woke them."""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.common.purgatory import DelayedOperation
from ottla.broker.replication.waits import PartitionWaits
from ottla.protocol.identifiers import TopicPartition


class RecordedWaits(PartitionWaits):
    """Calls back with each partition that moved, and lists those whose low watermark did."""

    def __init__(self, on_moved: Callable[[TopicPartition], None] = lambda partition: None) -> None:
        super().__init__()
        self._on_moved = on_moved
        self.moves: list[TopicPartition] = []
        self.low_watermark_moves: list[TopicPartition] = []

    def moved(self, partition: TopicPartition) -> None:
        """Note it, and wake who waits."""
        self.moves.append(partition)
        super().moved(partition)
        self._on_moved(partition)

    def low_watermark_moved(self, partition: TopicPartition) -> None:
        """Note it, and wake who waits."""
        self.low_watermark_moves.append(partition)
        super().low_watermark_moved(partition)


class Waiting(DelayedOperation):
    """Counts how often it is asked whether it is complete."""

    __slots__ = ("asked",)

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def is_satisfied(self) -> bool:
        """Never."""
        self.asked += 1
        return False
