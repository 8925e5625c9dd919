"""What the consumer does with answers of all kinds to its fetches, against scripted brokers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.client.consuming import until
from tests.client.scripted_broker import HANGUP, Reply, ScriptedBroker, metadata_response, run, scripted_broker

from ottla.client.consumer import Consumer
from ottla.client.errors import CorruptRecordError, TopicAuthorizationFailedError
from ottla.client.types import TopicPartition
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, LeaderIdAndEpoch, PartitionData
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.record_batch_builder import RecordBatchBuilder

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)
BATCH_RECORDS = 10

# What a broker answers about a partition in place of records; None for those.
Judge = Callable[[int, TopicPartition, int], PartitionData | None]


def refusal(partition: TopicPartition, code: ErrorCode, **fields: Any) -> PartitionData:
    """Return an answer with an error."""
    return PartitionData(partition_index=partition.partition, error_code=code, high_watermark=-1, **fields)


def batch(base_offset: int) -> bytes:
    """Return ten records with their offsets as values."""
    builder = RecordBatchBuilder()
    for offset in range(base_offset, base_offset + BATCH_RECORDS):
        builder.append(0, None, b"%d" % offset)
    return bytes(builder.build(base_offset=base_offset))


class Brokers:
    """Two brokers that have the same partitions: each batch has ten records, and a fetch gets one batch."""

    def __init__(self) -> None:
        self.running: dict[int, ScriptedBroker] = {}
        self.leaders = [1, 1]
        self.leader_epoch = 0
        self.ends = {ONE: 100, TWO: 100}
        self.judge: Judge = lambda node_id, partition, offset: None
        self.fetched: list[tuple[int, TopicPartition, int]] = []
        # Cleared, no fetch is answered.
        self.gate = asyncio.Event()
        self.gate.set()

    async def answer(self, node_id: int, api: Api, request: Any) -> Reply:
        """Answer what a consumer asks."""
        if api is Api.METADATA:
            addresses = {number: broker.address for number, broker in self.running.items()}
            topics = {"t": self.leaders} if request.topics is None or request.topics else {}
            return metadata_response(addresses, topics, leader_epoch=self.leader_epoch)
        if api is Api.LIST_OFFSETS:
            rows = [
                ListOffsetsPartitionResponse(partition_index=row.partition_index, error_code=0, offset=0)
                for row in request.topics[0].partitions
            ]
            return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=rows)])
        if api is Api.FETCH:
            return await self.fetch(node_id, request)
        return HANGUP

    async def fetch(self, node_id: int, request: Any) -> FetchResponse:
        """Answer with a batch of each partition that has one; wait a moment if none has."""
        asked = [(TopicPartition("t", row.partition), row.fetch_offset) for row in request.topics[0].partitions]
        self.fetched += [(node_id, partition, offset) for partition, offset in asked]
        await self.gate.wait()
        rows = [self.read(node_id, partition, offset) for partition, offset in asked]
        if not any(row.records or row.error_code or row.preferred_read_replica >= 0 for row in rows):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(request.max_wait_ms / 1000):
                    await asyncio.Event().wait()
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=rows)])

    def read(self, node_id: int, partition: TopicPartition, offset: int) -> PartitionData:
        """Read one batch, unless the judge of the test has another answer."""
        judged = self.judge(node_id, partition, offset)
        if judged is not None:
            return judged
        end = self.ends[partition]
        data = batch(offset - offset % BATCH_RECORDS) if offset < end else b""
        return PartitionData(partition_index=partition.partition, error_code=0, high_watermark=end, records=data)


@asynccontextmanager
async def reading(brokers: Brokers, *partitions: TopicPartition, **settings: Any) -> AsyncIterator[Consumer]:
    """Run the brokers and a consumer of these partitions."""

    def answerer(node_id: int) -> Callable[[Api, int, Any], Any]:
        return lambda api, version, request: brokers.answer(node_id, api, request)

    async with scripted_broker(answerer(1)) as first, scripted_broker(answerer(2)) as second:
        brokers.running = {1: first, 2: second}
        quick = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 5, "fetch_max_wait_ms": 20}
        options = {"bootstrap_servers": str(first.address), "auto_offset_reset": "earliest", **quick, **settings}
        async with Consumer(**options) as consumer:
            consumer.assign(partitions)
            yield consumer


async def offsets(consumer: Consumer, count: int) -> list[int]:
    """Read this many records."""
    return [(await consumer.getone()).offset for _ in range(count)]


def test_a_new_leader_is_followed() -> None:
    """When a broker says that another leads now, the fetches go there, and nothing is lost or comes twice."""

    async def scenario() -> None:
        brokers = Brokers()

        def judge(node_id: int, partition: TopicPartition, offset: int) -> PartitionData | None:
            if node_id == 1 and offset >= 20:
                brokers.leaders, brokers.leader_epoch = [2, 2], 1
                leader = LeaderIdAndEpoch(leader_id=2, leader_epoch=1)
                return refusal(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=leader)
            return None

        brokers.judge = judge
        async with reading(brokers, ONE) as consumer:
            assert await offsets(consumer, 50) == list(range(50))
        assert (2, ONE, 20) in brokers.fetched

    run(scenario)


def test_records_come_from_the_preferred_replica() -> None:
    """The leader sends the reader to another replica; when that does not have an offset, the leader is asked again."""

    async def scenario() -> None:
        brokers = Brokers()

        def judge(node_id: int, partition: TopicPartition, offset: int) -> PartitionData | None:
            if node_id == 1 and offset < 20:
                return PartitionData(
                    partition_index=0, error_code=0, high_watermark=100, preferred_read_replica=2, records=b""
                )
            return refusal(partition, ErrorCode.OFFSET_OUT_OF_RANGE) if node_id == 2 and offset >= 20 else None

        brokers.judge = judge
        async with reading(brokers, ONE, client_rack="here") as consumer:
            assert await offsets(consumer, 30) == list(range(30))
        assert brokers.fetched[:5] == [(1, ONE, 0), (2, ONE, 0), (2, ONE, 10), (2, ONE, 20), (1, ONE, 20)]

    run(scenario)


def test_a_bad_partition_does_not_hold_up_another() -> None:
    """The good one is read to its end; then the reader learns what is wrong, each time that it asks."""

    async def scenario() -> None:
        brokers = Brokers()
        brokers.judge = lambda node_id, partition, offset: (
            refusal(partition, ErrorCode.TOPIC_AUTHORIZATION_FAILED) if partition == ONE else None
        )
        async with reading(brokers, ONE, TWO) as consumer:
            seen: list[int] = []
            while len(seen) < 100:
                with contextlib.suppress(TopicAuthorizationFailedError):
                    seen.append((await consumer.getone()).offset)
            assert seen == list(range(100))
            for _ in range(2):
                with pytest.raises(TopicAuthorizationFailedError, match="t-0"):
                    await consumer.getone()

    run(scenario)


def test_what_was_asked_for_before_a_seek_is_dropped() -> None:
    """The answer to a fetch that was under way at the seek does not reach the reader."""

    async def scenario() -> None:
        brokers = Brokers()
        brokers.gate.clear()
        async with reading(brokers, ONE) as consumer:
            await until(lambda: (1, ONE, 0) in brokers.fetched)
            consumer.seek(ONE, 55)
            brokers.gate.set()
            assert await offsets(consumer, 10) == list(range(55, 65))

    run(scenario)


def test_no_more_is_fetched_than_there_is_room_for() -> None:
    """A reader that does not read has two fetches in store; more is asked for when it goes on."""

    async def scenario() -> None:
        brokers = Brokers()
        async with reading(brokers, ONE, max_partition_fetch_bytes=len(batch(0))) as consumer:
            assert (await consumer.getone(ONE)).offset == 0
            for _ in range(20):
                await consumer.topics()
            assert [offset for _, _, offset in brokers.fetched] == [0, 10]
            assert await offsets(consumer, 99) == list(range(1, 100))

    run(scenario)


def test_a_corrupt_batch_is_named_when_those_before_it_are_read() -> None:
    """CorruptRecordError, with the partition and the offset; a seek past it helps."""

    async def scenario() -> None:
        brokers = Brokers()

        def judge(node_id: int, partition: TopicPartition, offset: int) -> PartitionData | None:
            bad = bytearray(batch(10))
            bad[-1] ^= 1
            if offset >= 20:
                return None
            return PartitionData(partition_index=0, error_code=0, high_watermark=100, records=batch(0) + bad)

        brokers.judge = judge
        async with reading(brokers, ONE) as consumer:
            assert await offsets(consumer, 10) == list(range(10))
            with pytest.raises(CorruptRecordError, match="t-0 at offset 10"):
                await consumer.getone()
            consumer.seek(ONE, 20)
            assert await offsets(consumer, 10) == list(range(20, 30))

    run(scenario)


def test_a_broken_connection_is_made_again() -> None:
    """Fetching goes on where it was."""

    async def scenario() -> None:
        brokers = Brokers()
        async with reading(brokers, ONE) as consumer:
            assert await offsets(consumer, 15) == list(range(15))
            brokers.running[1].break_connections()
            assert await offsets(consumer, 50) == list(range(15, 65))

    run(scenario)
