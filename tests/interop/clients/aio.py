"""aiokafka."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError
from tests.interop.clients.record import CODECS, DEADLINE_S, SAFELY, ClientError, Producing, Received, Sent

__all__ = ["AIOKafkaProducer", "AioKafka", "TopicPartition", "consumer", "receive"]

FETCH_BYTES_MAX = 20_000_000


class AioKafka:
    """The producer and consumer of aiokafka."""

    name = "aiokafka"
    codecs: tuple[str, ...] = CODECS

    def produce(
        self, bootstrap: str, topic: str, records: Sequence[Sent], how: Producing = SAFELY, *, partition: int = 0
    ) -> list[int]:
        """Produce with `send`, then wait for the futures."""
        return asyncio.run(asyncio.wait_for(_produce(bootstrap, topic, records, how, partition), DEADLINE_S))

    def consume(self, bootstrap: str, topic: str, count: int, *, start: int = 0, partition: int = 0) -> list[Received]:
        """Consume with `assign`, `seek` and `getmany`."""
        return asyncio.run(asyncio.wait_for(_consume(bootstrap, topic, count, start, partition), DEADLINE_S))


async def _produce(bootstrap: str, topic: str, records: Sequence[Sent], how: Producing, partition: int) -> list[int]:
    async with AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        acks=how.acks,
        compression_type=None if how.codec == "none" else how.codec,
        enable_idempotence=how.idempotent,
        linger_ms=how.linger_ms,
        max_request_size=how.request_bytes_max,
        max_batch_size=how.request_bytes_max if how.linger_ms else 16_384,
        **dict(how.options),
    ) as producer:
        futures = [
            await producer.send(
                topic,
                record.value,
                record.key,
                partition=partition,
                headers=list(record.headers),
                timestamp_ms=record.timestamp_ms,
            )
            for record in records
        ]
        try:
            metadata = await asyncio.gather(*futures)
        except KafkaError as error:
            raise client_error(error) from error
        return [-1 if how.acks == 0 else each.offset for each in metadata]


async def _consume(bootstrap: str, topic: str, count: int, start: int, partition: int) -> list[Received]:
    async with consumer(bootstrap) as client:
        assigned = TopicPartition(topic, partition)
        client.assign([assigned])
        client.seek(assigned, start)
        return await receive(client, count)


def consumer(bootstrap: str, **options: Any) -> AIOKafkaConsumer:
    """Make a consumer that has no group; use it with `async with`."""
    return AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="none",
        fetch_max_bytes=FETCH_BYTES_MAX,
        max_partition_fetch_bytes=FETCH_BYTES_MAX,
        **options,
    )


async def receive(client: AIOKafkaConsumer, count: int) -> list[Received]:
    """Return the next records; ClientError where the consumer reports an error."""
    received: list[Received] = []
    while len(received) < count:
        try:
            found = await client.getmany(timeout_ms=1000, max_records=count - len(received))
        except KafkaError as error:
            raise client_error(error) from error
        received += [
            Received(record.offset, record.timestamp, record.key, record.value, tuple(record.headers))
            for records in found.values()
            for record in records
        ]
    return received


def client_error(error: KafkaError) -> ClientError:
    """Return the error in our form; one that the client made up itself passes for UNKNOWN_SERVER_ERROR."""
    return ClientError(getattr(error, "errno", -1), repr(error))
