"""The effects of group membership on the consumer: its partitions, and calls of the listener."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from ottla.client.consumer.assigned_partitions import AssignedPartitions
from ottla.client.consumer.consumer_metrics import ConsumerMetrics
from ottla.client.consumer.rebalance_listener import ConsumerRebalanceListener
from ottla.client.net.metadata import first_of
from ottla.protocol.identifiers import TopicPartition

log = logging.getLogger(__name__)

# A coordinator may delay responses to members, which must not delay other requests.
LANE: Final = "group"
LEAVE_TIMEOUT_MS: Final = 5_000


class GroupHost:
    """The consumer as a group member sees it; it also has the consumer's subscription."""

    def __init__(
        self,
        partitions: AssignedPartitions,
        before_revoke: Callable[[Iterable[TopicPartition]], Awaitable[None]],
        group_id: str | None,
        metrics: ConsumerMetrics,
    ) -> None:
        self._group_id = group_id
        self._metrics = metrics
        self.partitions = partitions
        self.topics: frozenset[str] = frozenset()
        self.listener: ConsumerRebalanceListener | None = None
        # The error that ended the membership; every call for records raises it.
        self.failure: Exception | None = None
        # Set when the caller asks for records; a caller that was too slow rejoins then.
        self.polled = asyncio.Event()
        self._before_revoke = before_revoke
        self._loop = asyncio.get_running_loop()
        self._waiting = 0
        self._polled_at = self._loop.time()

    # Whether the caller is alive.

    def poll_began(self) -> None:
        """The caller asks for records."""
        self._waiting += 1
        self.polled.set()

    def poll_ended(self) -> None:
        """The caller has got records, or nothing in time."""
        self._waiting -= 1
        self.poll_passed()

    def poll_passed(self) -> None:
        """The caller has asked for records and got them without waiting."""
        self._polled_at = self._loop.time()

    def idle_s(self) -> float:
        """Since when the caller has not asked for records."""
        return 0.0 if self._waiting else self._loop.time() - self._polled_at

    # Called by the member.

    @property
    def owned(self) -> set[TopicPartition]:
        """The currently assigned partitions."""
        return self.partitions.names()

    async def revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """Give up partitions that are still ours."""
        gone = {partition for partition in partitions if partition in self.partitions}
        if not gone:
            return
        log.info("group %s: revoked %s", self._group_id, _named(gone))
        self.partitions.hold(gone)
        await self._before_revoke(gone)
        if self.listener is not None:
            await _told(self.listener.on_partitions_revoked(gone))
        self.partitions.remove(gone)

    async def lost(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop partitions that another member may already have."""
        gone = {partition for partition in partitions if partition in self.partitions}
        if not gone:
            return
        log.warning("group %s: lost %s", self._group_id, _named(gone))
        self.partitions.remove(gone)
        if self.listener is not None:
            await _told(self.listener.on_partitions_lost(gone))

    async def assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """Add partitions; the listener is called for every rebalance, even if nothing is new."""
        new = {partition for partition in partitions if partition not in self.partitions}
        self._metrics.rebalances.record()
        log.info("group %s: assigned %s", self._group_id, _named(new))
        self.partitions.add(new, "committed")
        self.partitions.hold(new)
        if self.listener is not None:
            await _told(self.listener.on_partitions_assigned(new))
        self.partitions.release(new)

    def failed(self, error: Exception) -> None:
        """The membership ended with an error."""
        self.failure = error
        self.partitions.arrived.set()


def _named(partitions: Iterable[TopicPartition]) -> str:
    return first_of(list(map(str, sorted(partitions)))) or "nothing new"


async def _told(result: Awaitable[None] | None) -> None:
    if inspect.isawaitable(result):
        await result
