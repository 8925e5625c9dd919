"""Hands out fetched records: waits for them, takes them from the partitions in turn, and raises their errors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ottla.client.consumer.assigned_partitions import AssignedPartition, AssignedPartitions, LentRecords
from ottla.client.consumer.group.group_host import GroupHost
from ottla.client.consumer.group.offset_requests import GroupMembership
from ottla.client.consumer.interceptors import ConsumerInterceptors, RecordsByPartition
from ottla.client.consumer.settings import ConsumerSettings
from ottla.client.records.fetched_batches import FetchedBatch
from ottla.client.types import ConsumerRecord
from ottla.protocol.identifiers import TopicPartition

T = TypeVar("T")


class RecordReader:
    """The calls for records. Records count as processed when the caller asks for more."""

    def __init__(
        self,
        settings: ConsumerSettings,
        partitions: AssignedPartitions,
        host: GroupHost,
        membership: Callable[[], GroupMembership],
    ) -> None:
        self._settings = settings
        self._partitions = partitions
        self._host = host
        self._membership = membership
        self._interceptors = ConsumerInterceptors(settings.interceptors) if settings.interceptors else None
        # The membership under which the last records were handed out. Those of an opened batch, which follow without a
        # wait, belong to the call that opened it.
        self.read_as: GroupMembership | None = None
        # The partition that the last records came from.
        self._last: AssignedPartition | None = None

    async def one(self, wanted: Sequence[TopicPartition], timeout_ms: int | None) -> ConsumerRecord[Any, Any] | None:
        """Wait for a record; None after the timeout."""
        if not wanted and (record := self._next_of_same()) is not None:
            return record
        found = await self._wait(lambda: self._records(wanted, 1), wanted, timeout_ms)
        return next((records[0] for records in found.values()), None) if found else None

    def _next_of_same(self) -> ConsumerRecord[Any, Any] | None:
        """Return the record after the last one without checking all partitions, if it is buffered and opened."""
        state = self._last
        if state is None or self._interceptors is not None or self._partitions.get(state.partition) is not state:
            return None
        before = state.position
        record = state.take_opened()
        if record is not None:
            state.processed = before
            self._host.poll_passed()
        return record

    async def lent(self, timeout_ms: int | None) -> tuple[ConsumerRecord[Any, Any] | None, LentRecords | None]:
        """Wait for a record, and lend those after it to the calling thread; None after the timeout."""
        record = await self.one((), timeout_ms)
        if record is None or self._last is None or self._interceptors is not None:
            return record, None
        return record, self._partitions.lend(self._last, self._host.poll_passed)

    async def many(
        self, wanted: Sequence[TopicPartition], timeout_ms: int, limit: int
    ) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]]:
        """Wait for records, at most until the timeout."""
        return await self._wait(lambda: self._records(wanted, limit), wanted, timeout_ms) or {}

    async def batches(
        self, wanted: Sequence[TopicPartition], timeout_ms: int
    ) -> dict[TopicPartition, list[FetchedBatch]]:
        """Wait for batches, at most until the timeout."""
        return await self._wait(lambda: self._batches(wanted), wanted, timeout_ms) or {}

    async def _wait(self, take: Callable[[], T], wanted: Sequence[TopicPartition], timeout_ms: int | None) -> T | None:
        """Call `take` until it returns something."""
        self._host.poll_began()
        try:
            self._partitions.mark_processed()
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                while True:
                    self._partitions.arrived.clear()
                    if taken := take():
                        self.read_as = self._membership()
                        self._partitions.wanted.set()
                        return taken
                    if self._host.failure is not None:
                        raise self._host.failure
                    self._partitions.raise_failure(wanted)
                    await self._partitions.arrived.wait()
        except TimeoutError:
            return None
        finally:
            self._host.poll_ended()

    def _records(self, wanted: Sequence[TopicPartition], limit: int) -> RecordsByPartition:
        taken = self._take(wanted, limit)
        while taken and self._interceptors is not None:
            if passed := self._interceptors.on_consume(taken):
                return passed
            # All were left out: the caller gets others.
            taken = self._take(wanted, limit)
        return taken

    def _take(self, wanted: Sequence[TopicPartition], limit: int) -> RecordsByPartition:
        keys, values = self._settings.key_deserializer, self._settings.value_deserializer
        taken: RecordsByPartition = {}
        for state in self._ready(wanted):
            try:
                records = state.take_records(limit, keys, values)
            except Exception:
                # The records already taken must not be lost. This partition fails again in the next call.
                if taken:
                    continue
                raise
            if records:
                self._last = state
                taken[state.partition] = records
                limit -= len(records)
                if limit <= 0:
                    break
        return taken

    def _batches(self, wanted: Sequence[TopicPartition]) -> dict[TopicPartition, list[FetchedBatch]]:
        return {state.partition: state.take_batches() for state in self._ready(wanted)}

    def _ready(self, wanted: Sequence[TopicPartition]) -> list[AssignedPartition]:
        return [state for state in self._partitions.in_turn(wanted) if state.has_records]
