"""A broker for tests of the producer, which writes what it gets unless the test says otherwise."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.client.scripted_broker import SILENCE, Reply, ScriptedBroker, metadata_response, scripted_broker

from ottla.client.net.settings import HostPort
from ottla.client.producer.producer import Producer
from ottla.protocol.api import Api
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.init_producer_id import InitProducerIdResponse
from ottla.protocol.messages.produce import (
    LeaderIdAndEpoch,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.protocol.records import RecordBatch

# What a broker does with a batch: nothing special (None), an error code, or an answer of its own.
Judge = Callable[[TopicPartition, RecordBatch], int | Reply | None]


class Brokers:
    """A broker that writes what it gets, unless the judge of the test says otherwise."""

    def __init__(self) -> None:
        self.broker: ScriptedBroker | None = None
        self.leaders = {"t": [1, 1, 1]}
        self.leader_epoch = 0
        # Other brokers that metadata has.
        self.others: dict[int, HostPort] = {}
        self.errors: dict[str, int] = {}
        self.judge: Judge = lambda partition, batch: None
        self.log: dict[TopicPartition, list[bytes | None]] = defaultdict(list)
        self.batches: list[tuple[TopicPartition, RecordBatch]] = []
        self.acks: set[int] = set()
        self.log_append_time = -1
        # Cleared, nothing is answered.
        self.gate = asyncio.Event()
        self.gate.set()

    async def answer(self, api: Api, version: int, request: Any) -> Reply:
        """Answer what a producer asks."""
        if api is Api.METADATA:
            assert self.broker is not None
            asked = {row.name for row in request.topics}
            known = {topic: of for topic, of in self.leaders.items() if topic in asked}
            errors = {topic: code for topic, code in self.errors.items() if topic in asked}
            addresses = {1: self.broker.address, **self.others}
            return metadata_response(addresses, known, leader_epoch=self.leader_epoch, errors=errors)
        if api is Api.INIT_PRODUCER_ID:
            return InitProducerIdResponse(throttle_time_ms=0, error_code=0, producer_id=7, producer_epoch=0)
        assert api is Api.PRODUCE
        await self.gate.wait()
        self.acks.add(request.acks)
        topics = []
        for topic in request.topic_data:
            rows = []
            for data in topic.partition_data:
                row = self._write(TopicPartition(topic.name, data.index), RecordBatch(bytes(data.records)))
                if not isinstance(row, PartitionProduceResponse):
                    return row
                rows.append(row)
            topics.append(TopicProduceResponse(name=topic.name, partition_responses=rows))
        return ProduceResponse(responses=topics) if request.acks else SILENCE

    def _write(self, partition: TopicPartition, batch: RecordBatch) -> PartitionProduceResponse | Reply:
        batch.check()
        self.batches.append((partition, batch))
        verdict = self.judge(partition, batch)
        if verdict is not None and not isinstance(verdict, int):
            return verdict
        log = self.log[partition]
        offset = len(log)
        if verdict is None:
            log.extend(record.value for record in batch.records())
        return PartitionProduceResponse(
            index=partition.partition,
            error_code=verdict or 0,
            base_offset=-1 if verdict else offset,
            log_append_time_ms=self.log_append_time,
            log_start_offset=0,
            current_leader=LeaderIdAndEpoch(),
        )


@asynccontextmanager
async def producing(brokers: Brokers, **options: Any) -> AsyncIterator[Producer]:
    """Run a broker and a producer that retries without waiting long."""
    quick = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 5, "reconnect_backoff_ms": 1, "reconnect_backoff_max_ms": 5}
    async with scripted_broker(brokers.answer) as broker:
        brokers.broker = broker
        async with Producer(bootstrap_servers=str(broker.address), **(quick | options)) as producer:
            yield producer
