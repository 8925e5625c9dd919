"""Topics with everything that a mirror must not get wrong, and what two clusters have of them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any, NamedTuple

from ottla import Admin, Consumer, Producer
from ottla.client.admin.results import OffsetSpec
from ottla.client.mirror.reading import Reader
from ottla.client.types import TopicPartition

RECORDS = 60
COMMITTED, ABORTED = 4, 3
TRIMMED = 10
T0 = 1_700_000_000_000


class Seen(NamedTuple):
    """A record as a consumer sees it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


async def fill(bootstrap: str, topic: str, partitions: int = 2) -> None:
    """Write records of all kinds, transactions that end in both ways, and delete the first records of partition 0."""
    for codec in (None, "gzip", "lz4", "zstd"):
        async with Producer(bootstrap_servers=bootstrap, compression_type=codec, linger_ms=5) as producer:
            sent = [
                await producer.send(
                    topic,
                    None if number % 7 == 0 else b"value-%d" % number,
                    key=b"key-%d" % number if number % 3 else None,
                    partition=number % partitions,
                    timestamp_ms=T0 + number,
                    headers=[("codec", str(codec).encode()), ("null", None)],
                )
                for number in range(RECORDS // 4)
            ]
            await asyncio.gather(*sent)
    async with Producer(bootstrap_servers=bootstrap, transactional_id=f"writes-{topic}") as producer:
        for count, is_committed in ((COMMITTED, True), (ABORTED, False), (COMMITTED, True)):
            await producer.begin_transaction()
            for number in range(count):
                value = b"%s-%d" % (b"committed" if is_committed else b"aborted", number)
                await (await producer.send(topic, value, partition=number % partitions))
            await (producer.commit_transaction() if is_committed else producer.abort_transaction())
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.delete_records({TopicPartition(topic, 0): TRIMMED})


async def write(bootstrap: str, topic: str, count: int, partition: int = 0) -> None:
    """Write some more records."""
    async with Producer(bootstrap_servers=bootstrap) as producer:
        sent = [await producer.send(topic, b"more-%d" % each, partition=partition) for each in range(count)]
        await asyncio.gather(*sent)


async def seen(bootstrap: str, partition: TopicPartition) -> list[Seen]:
    """Read what was committed of a partition, from its start to its end."""
    async with Consumer(bootstrap_servers=bootstrap, isolation_level="read_committed", group_id=None) as consumer:
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        (end,) = (await consumer.end_offsets([partition])).values()
        found: list[Seen] = []
        while await consumer.position(partition) < end:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                found += [
                    Seen(each.offset, each.timestamp, each.key, each.value, tuple(each.headers)) for each in records
                ]
        return found


async def stored(bootstrap: str, partition: TopicPartition) -> list[tuple[int, bytes]]:
    """Return the batches of a partition: offsets, and the bytes that producers write."""
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.cluster.metadata([partition.topic])
        (start,), (end,) = [
            [row.offset for row in await admin.list_offsets({partition: spec})]
            for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)
        ]
        reader, found = Reader(admin.cluster), []
        while start < end:
            for batch in await reader.read(partition, start):
                # All but base offset and leader epoch, which brokers give.
                found.append((batch.base_offset, bytes(batch.view[16:])))
                start = batch.next_offset
        return found


async def ends(bootstrap: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
    """Return where the logs of partitions start and end."""
    async with Admin(bootstrap_servers=bootstrap) as admin:
        found: dict[TopicPartition, Any] = {}
        for partition in partitions:
            rows = [await admin.list_offsets({partition: spec}) for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)]
            found[partition] = tuple(row[0].offset for row in rows)
        return found
