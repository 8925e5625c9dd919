"""What a consumer of a group may want to know about its partitions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable

from ottla.protocol.identifiers import TopicPartition


class ConsumerRebalanceListener(ABC):
    """Told when partitions come and go; each method may be a coroutine, and the rebalance waits for it."""

    @abstractmethod
    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> Awaitable[None] | None:
        """Finish with these partitions, which are still ours: the place to commit their offsets."""

    @abstractmethod
    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> Awaitable[None] | None:
        """Begin with these partitions, which are new: the place to seek."""

    def on_partitions_lost(self, lost: set[TopicPartition]) -> Awaitable[None] | None:
        """Drop these partitions, which others may have already: commits are too late; as revoked if not overridden."""
        return self.on_partitions_revoked(lost)
