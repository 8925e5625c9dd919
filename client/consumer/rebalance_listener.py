"""The listener for rebalances of a group."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable

from ottla.protocol.identifiers import TopicPartition


class ConsumerRebalanceListener(ABC):
    """Called when partitions are assigned and revoked; methods may be coroutines, and the rebalance waits for them."""

    @abstractmethod
    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> Awaitable[None] | None:
        """These partitions are about to be revoked but are still ours: commit their offsets here."""

    @abstractmethod
    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> Awaitable[None] | None:
        """These partitions are newly assigned: seek here."""

    def on_partitions_lost(self, lost: set[TopicPartition]) -> Awaitable[None] | None:
        """These partitions may already belong to others; commits are too late. Default: as on_partitions_revoked."""
        return self.on_partitions_revoked(lost)
