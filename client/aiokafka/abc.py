"""aiokafka's classes for programs to subclass."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

__all__ = ["AbstractTokenProvider", "ConsumerRebalanceListener"]


class ConsumerRebalanceListener(ABC):
    """Called in each rebalance; methods may be coroutines, and the rebalance waits for them.

    Unlike ours, it is called with all partitions, also if few of them move, and not when the consumer stops.
    """

    @abstractmethod
    def on_partitions_revoked(self, revoked: Any) -> Any:
        """A rebalance begins: these partitions are about to be given up."""

    @abstractmethod
    def on_partitions_assigned(self, assigned: Any) -> Any:
        """A rebalance is over: these are the partitions of this consumer."""


class AbstractTokenProvider(ABC):
    """Gets tokens for OAUTHBEARER."""

    @abstractmethod
    async def token(self) -> Any:
        """Return a token; called for each new connection."""

    def extensions(self) -> Any:
        """Return extensions of SASL/OAUTHBEARER; they are not sent."""
        return {}
