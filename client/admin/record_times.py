"""The times of single records, such as the first one that a group has not committed.

The protocol looks up offsets by time, not times by offset. So the batch that holds the offset is fetched, and only its
header is read. A batch has the time of its first record, and that of its last one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from ottla.client.errors import KafkaError
from ottla.client.net.cluster_client import ClusterClient
from ottla.protocol.api import Api
from ottla.protocol.errors import CorruptBatchError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.records import batches, first_timestamp

# Versions that still identify topics by name; 4 is the first with batches of magic 2.
_FETCH_VERSION_MIN: Final = 4
_FETCH_VERSION_MAX: Final = 12
_TIMEOUT_MS: Final = 3_000
# A broker returns at least one whole batch of the first partition, whatever the limits are. So each is asked alone.
_BATCH_BYTES: Final = 1
_AT_ONCE: Final = 8
# Batches must not delay other answers on the same connection.
_LANE: Final = "record-times"


async def record_times(cluster: ClusterClient, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the time of the record at or after each offset, in milliseconds; what cannot be read is left out."""
    metadata = await cluster.metadata({partition.topic for partition in offsets})
    free = asyncio.Semaphore(_AT_ONCE)

    async def found_time(partition: TopicPartition, offset: int) -> int | None:
        topic = metadata.topics.get(partition.topic)
        info = None if topic is None else topic.partitions.get(partition.partition)
        if info is None or info.leader is None or info.leader not in metadata.brokers:
            return None
        row = FetchPartition(partition=partition.partition, fetch_offset=offset, partition_max_bytes=_BATCH_BYTES)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=_BATCH_BYTES,
            topics=[FetchTopic(topic=partition.topic, partitions=[row])],
        )
        async with free:
            try:
                response = await cluster.send(
                    info.leader,
                    Api.FETCH,
                    request,
                    _TIMEOUT_MS,
                    lane=_LANE,
                    version_min=_FETCH_VERSION_MIN,
                    version_max=_FETCH_VERSION_MAX,
                )
                records = [part.records for answer in response.responses for part in answer.partitions]
                found = (batch for data in records for batch in batches(data or b"") if batch.next_offset > offset)
                return next((first_timestamp(batch.view) for batch in found), None)
            except (KafkaError, CorruptBatchError):
                return None

    times = await asyncio.gather(*(found_time(partition, offset) for partition, offset in offsets.items()))
    return {partition: time for partition, time in zip(offsets, times, strict=True) if time is not None}
