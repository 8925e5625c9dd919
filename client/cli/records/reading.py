"""Read partitions without a group: one fetch to each leader in turn, from given offsets."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Final, NamedTuple

from ottla.client.admin.admin import Admin
from ottla.client.errors import KafkaError, LeaderNotAvailableError, error_for
from ottla.protocol.api import Api
from ottla.protocol.errors import CorruptBatchError, ErrorCode
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.primitives import INT64_MAX
from ottla.protocol.record import Record
from ottla.protocol.records import batches

# Versions that still identify topics by name; 4 is the first with batches of magic 2.
_FETCH_VERSION_MIN: Final = 4
_FETCH_VERSION_MAX: Final = 12
_WAIT_MS: Final = 500
_FETCH_BYTES_MAX: Final = 8 * 1024 * 1024
_PARTITION_BYTES_MAX: Final = 1024 * 1024


class ReadRecord(NamedTuple):
    """A record and where it was read."""

    partition: TopicPartition
    record: Record


class PartitionReader:
    """Positions in partitions, and the records from there on."""

    def __init__(
        self,
        admin: Admin,
        positions: Mapping[TopicPartition, int],
        *,
        stops: Mapping[TopicPartition, int] | None = None,
        read_committed: bool = True,
        fetch_bytes_max: int = _FETCH_BYTES_MAX,
        partition_bytes_max: int = _PARTITION_BYTES_MAX,
    ) -> None:
        self._admin = admin
        self._fetch_bytes_max = fetch_bytes_max
        self._partition_bytes_max = partition_bytes_max
        self.positions = dict(positions)
        # Where to stop reading partitions, before the record of that offset; None: nowhere.
        self._stops = stops
        # The end offsets for readers, from the last responses of the leaders.
        self.ends: dict[TopicPartition, int] = {}
        self._isolation_level = int(read_committed)

    async def fetches(self, *, until_end: bool) -> AsyncIterator[list[ReadRecord]]:
        """Yield the records of one fetch at a time: for ever, up to the current ends, or up to where to stop."""
        while left := [each for each in self.positions if not self._is_done(each, until_end)]:

            async def attempt(partitions: list[TopicPartition] = left) -> list[ReadRecord]:
                return await self._fetch(partitions)

            yield await self._admin.cluster.retrying(attempt)

    def _is_done(self, partition: TopicPartition, until_end: bool) -> bool:
        position = self.positions[partition]
        if self._stops is not None and position >= self._stops[partition]:
            return True
        return until_end and partition in self.ends and position >= self.ends[partition]

    async def _fetch(self, partitions: list[TopicPartition]) -> list[ReadRecord]:
        """Fetch once from every leader; raise an error only if nothing could be read."""
        cluster = self._admin.cluster
        metadata = await cluster.metadata({each.topic for each in partitions})
        by_leader: dict[int, list[TopicPartition]] = {}
        errors: list[KafkaError] = []
        for each in partitions:
            leader = metadata.leader(each)
            if leader is None:
                errors.append(LeaderNotAvailableError(f"{each} has no leader"))
            else:
                by_leader.setdefault(leader, []).append(each)
        answers = await asyncio.gather(*(self._fetch_from(leader, led, errors) for leader, led in by_leader.items()))
        reads = [read for answer in answers for read in answer]
        if any(error.retriable for error in errors):
            await cluster.metadata({each.topic for each in partitions}, force=True)
        if errors and not reads:
            raise next((error for error in errors if not error.retriable), errors[0])
        return reads

    async def _fetch_from(
        self, leader: int, partitions: list[TopicPartition], errors: list[KafkaError]
    ) -> list[ReadRecord]:
        try:
            response = await self._admin.cluster.send(
                leader,
                Api.FETCH,
                self._request(partitions),
                version_min=_FETCH_VERSION_MIN,
                version_max=_FETCH_VERSION_MAX,
            )
        except KafkaError as error:
            errors.append(error)
            return []
        return self._taken(response, errors)

    def _request(self, partitions: list[TopicPartition]) -> FetchRequest:
        topics: dict[str, list[FetchPartition]] = {}
        for each in partitions:
            row = FetchPartition(
                partition=each.partition,
                fetch_offset=self.positions[each],
                partition_max_bytes=self._partition_bytes_max,
            )
            topics.setdefault(each.topic, []).append(row)
        return FetchRequest(
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=self._fetch_bytes_max,
            isolation_level=self._isolation_level,
            topics=[FetchTopic(topic=name, partitions=rows) for name, rows in topics.items()],
        )

    def _taken(self, response: Any, errors: list[KafkaError]) -> list[ReadRecord]:
        reads: list[ReadRecord] = []
        if response.error_code:
            errors.append(error_for(response.error_code))
        for topic in response.responses:
            for row in topic.partitions:
                partition = TopicPartition(topic.topic, row.partition_index)
                if row.error_code:
                    errors.append(error_for(row.error_code, f"{partition} at offset {self.positions[partition]}"))
                    continue
                is_committed = bool(self._isolation_level) and row.last_stable_offset >= 0
                self.ends[partition] = row.last_stable_offset if is_committed else row.high_watermark
                try:
                    for read in self._decoded(partition, row):
                        reads.append(read)
                except CorruptBatchError as error:
                    detail = f"{partition} at offset {self.positions[partition]}: {error}"
                    errors.append(error_for(ErrorCode.CORRUPT_MESSAGE, detail))
        return reads

    def _decoded(self, partition: TopicPartition, row: Any) -> Iterator[ReadRecord]:
        """Yield the records from our position on, without control records and aborted records."""
        aborted = deque(sorted(row.aborted_transactions or (), key=lambda each: each.first_offset))
        # Producers whose transaction at this point of the log was aborted.
        aborting: set[int] = set()
        stop = INT64_MAX if self._stops is None else self._stops[partition]
        for batch in batches(row.records or b""):
            batch.check()
            while aborted and aborted[0].first_offset <= batch.last_offset:
                aborting.add(aborted.popleft().producer_id)
            if batch.is_control:
                aborting.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in aborting):
                for record in batch.records():
                    if self.positions[partition] <= record.offset < stop:
                        yield ReadRecord(partition, record)
            self.positions[partition] = max(self.positions[partition], batch.next_offset)
