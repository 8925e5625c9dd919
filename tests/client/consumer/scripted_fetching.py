"""Two scripted brokers for consumers to fetch from, which answer as the test wants."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from tests.client.scripted_broker import HANGUP, Reply, ScriptedBroker, metadata_response, scripted_broker

from ottla.client.consumer.consumer import Consumer
from ottla.client.types import TopicPartition
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from ottla.protocol.record_batch_builder import RecordBatchBuilder

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)
BATCH_RECORDS = 10

# What a broker answers about a partition in place of records; None for those.
Judge = Callable[[int, TopicPartition, int], PartitionData | None]


def refusal(partition: TopicPartition, code: ErrorCode, **fields: Any) -> PartitionData:
    """Return an answer with an error."""
    return PartitionData(partition_index=partition.partition, error_code=code, high_watermark=-1, **fields)


def batch(base_offset: int, leader_epoch: int = -1) -> bytes:
    """Return ten records with their offsets as values."""
    builder = RecordBatchBuilder()
    for offset in range(base_offset, base_offset + BATCH_RECORDS):
        builder.append(0, None, b"%d" % offset)
    return bytes(builder.build(base_offset=base_offset, partition_leader_epoch=leader_epoch))


class Brokers:
    """Two brokers that have the same partitions: each batch has ten records, and a fetch gets one batch."""

    def __init__(self) -> None:
        self.running: dict[int, ScriptedBroker] = {}
        self.leaders = [1, 1]
        self.leader_epoch = 0
        # The epoch of all records; and by epoch, what is said of where it ends.
        self.record_epoch = -1
        self.epoch_ends: dict[int, EpochEndOffset] = {}
        self.epochs_asked: list[int] = []
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
        if api is Api.OFFSET_FOR_LEADER_EPOCH:
            return self.ends_of_epochs(request)
        if api is Api.FETCH:
            return await self.fetch(node_id, request)
        return HANGUP

    def ends_of_epochs(self, request: Any) -> OffsetForLeaderEpochResponse:
        """Say where epochs end, as the test has it."""
        rows = request.topics[0].partitions
        self.epochs_asked += [row.leader_epoch for row in rows]
        results = [replace(self.epoch_ends[row.leader_epoch], partition=row.partition) for row in rows]
        return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic="t", partitions=results)])

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
        data = batch(offset - offset % BATCH_RECORDS, self.record_epoch) if offset < end else b""
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
