"""Copies batches: a task for each leader of the source fetches from it, and appends what it got to the destination.

The next fetch is under way while the destination appends, so at most two responses of each leader are in memory. A
partition whose append failed looks up its position again, and what was fetched ahead for it is dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence
from typing import Final

from ottla.client.errors import KafkaError
from ottla.client.mirror.destination import Destination
from ottla.client.mirror.partition_copy import Fetched, PartitionCopy
from ottla.client.mirror.positions import Positions
from ottla.client.mirror.reading import Reader
from ottla.protocol.identifiers import TopicPartition

log = logging.getLogger(__name__)

_PAUSE_SECONDS: Final = 0.2


class Copier:
    """Copies partitions until it is cancelled."""

    def __init__(self, source: Reader, destination: Destination, positions: Positions) -> None:
        self._source = source
        self._destination = destination
        self._positions = positions
        self.copies: dict[TopicPartition, PartitionCopy] = {}
        # Set after each round, for those who wait for progress.
        self.progressed = asyncio.Event()
        self._leaders: set[int] = set()

    def add(self, partition: TopicPartition) -> PartitionCopy:
        """Copy a partition from now on; return its state."""
        return self.copies.setdefault(partition, PartitionCopy(partition))

    def remove(self, partitions: Collection[TopicPartition]) -> None:
        """Stop copying partitions that the source does not have any more."""
        for partition in partitions:
            self.copies.pop(partition, None)

    async def run(self) -> None:
        """Copy for ever; MirrorError if nothing can be copied any more."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                leaders = {self._source.cluster.leader(partition) for partition in self.copies}
                for leader in leaders - self._leaders - {None}:
                    assert leader is not None
                    self._leaders.add(leader)
                    tasks.create_task(self._copy_from(leader))
                if None in leaders:
                    self._source.cluster.request_refresh()
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _copy_from(self, leader: int) -> None:
        """Copy what a broker of the source leads, until it leads nothing."""
        appending: asyncio.Task[None] | None = None
        turn = 0
        try:
            while led := [each for each in self.copies.values() if self._is_led_by(each, leader)]:
                ready = await self._ready(led)
                if not ready:
                    await asyncio.sleep(_PAUSE_SECONDS)
                    continue
                # A response is filled in the order of the request, so all get their turn to be first.
                turn = (turn + 1) % len(ready)
                fetched = await self._fetch(leader, ready[turn:] + ready[:turn])
                if appending is not None:
                    await appending
                # What has failed to be appended is not continued.
                fetched = [each for each in fetched if each.copy.position == each.offset]
                for each in fetched:
                    each.copy.position = each.next_offset
                appending = asyncio.create_task(self._append(fetched))
            if appending is not None:
                await appending
        finally:
            self._leaders.discard(leader)
            if appending is not None and not appending.done():
                appending.cancel()

    def _is_led_by(self, copy: PartitionCopy, leader: int) -> bool:
        return copy.problem is None and self._source.cluster.leader(copy.partition) == leader

    async def _ready(self, copies: Sequence[PartitionCopy]) -> list[PartitionCopy]:
        """Return the copies whose positions are known, after looking up those that are due."""
        now = asyncio.get_running_loop().time()
        unknown = [copy for copy in copies if copy.position is None and copy.retry_at <= now]
        if unknown:
            await self._positions.look_up(unknown)
        return [copy for copy in copies if copy.position is not None]

    async def _fetch(self, leader: int, copies: Sequence[PartitionCopy]) -> list[Fetched]:
        now = asyncio.get_running_loop().time()
        try:
            return await self._source.fetch(leader, copies, now)
        except KafkaError as error:
            log.info("cannot fetch from broker %d of the source: %s", leader, error)
            for copy in copies:
                copy.error = f"source: {error}"
            self._source.cluster.request_refresh()
            await asyncio.sleep(_PAUSE_SECONDS)
            return []

    async def _append(self, fetched: Sequence[Fetched]) -> None:
        await self._destination.append(fetched)
        self.progressed.set()
