"""Our own client, in the form that the tests have for all."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

from tests.interop.clients.record import CODECS, DEADLINE_S, SAFELY, ClientError, Producing, Received, Sent

from ottla.client.consumer.consumer import Consumer
from ottla.client.errors import KafkaError
from ottla.client.producer.producer import Producer
from ottla.client.producer.settings import CompressionType
from ottla.client.types import TopicPartition


class Own:
    """Our Producer and Consumer."""

    name = "ottla"
    codecs: tuple[str, ...] = CODECS

    def produce(
        self, bootstrap: str, topic: str, records: Sequence[Sent], how: Producing = SAFELY, *, partition: int = 0
    ) -> list[int]:
        """Produce with `send`, then wait for what it returned."""
        return asyncio.run(asyncio.wait_for(_produce(bootstrap, topic, records, how, partition), DEADLINE_S))

    def consume(self, bootstrap: str, topic: str, count: int, *, start: int = 0, partition: int = 0) -> list[Received]:
        """Consume with `assign`, `seek` and `getmany`."""
        assigned = TopicPartition(topic, partition)
        return asyncio.run(asyncio.wait_for(_consume(bootstrap, assigned, count, start), DEADLINE_S))

    def columns(self, bootstrap: str, topic: str, count: int) -> list[Received]:
        """Consume partition 0 from its beginning with `getcolumns`."""
        return asyncio.run(asyncio.wait_for(_columns(bootstrap, TopicPartition(topic, 0), count), DEADLINE_S))


async def _produce(bootstrap: str, topic: str, records: Sequence[Sent], how: Producing, partition: int) -> list[int]:
    async with Producer(
        bootstrap_servers=bootstrap,
        acks=how.acks,
        compression_type=cast(CompressionType, how.codec),
        enable_idempotence=how.idempotent,
        linger_ms=how.linger_ms,
        max_request_size=how.request_bytes_max,
        **dict(how.options),
    ) as producer:
        try:
            deliveries = [
                await producer.send(topic, sent.value, sent.key, partition, sent.timestamp_ms, sent.headers)
                for sent in records
            ]
            return [(await delivery).offset for delivery in deliveries]
        except KafkaError as error:
            raise _client_error(error) from error


async def _consume(bootstrap: str, assigned: TopicPartition, count: int, start: int) -> list[Received]:
    received: list[Received] = []
    async with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="none") as consumer:
        consumer.assign([assigned])
        consumer.seek(assigned, start)
        while len(received) < count:
            try:
                found = await consumer.getmany(timeout_ms=1000, max_records=count - len(received))
            except KafkaError as error:
                raise _client_error(error) from error
            received += [
                Received(record.offset, record.timestamp, record.key, record.value, tuple(record.headers))
                for record in found.get(assigned, [])
            ]
    return received


async def _columns(bootstrap: str, assigned: TopicPartition, count: int) -> list[Received]:
    received: list[Received] = []
    async with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="none") as consumer:
        consumer.assign([assigned])
        consumer.seek(assigned, 0)
        while len(received) < count:
            for some in (await consumer.getcolumns(timeout_ms=1000)).values():
                rows = zip(some.offsets, some.timestamps, some.keys, some.values, some.headers, strict=True)
                received += [Received(*row) for row in rows]
    return received


def _client_error(error: KafkaError) -> ClientError:
    return ClientError(error.errno, repr(error))
