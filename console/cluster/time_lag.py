"""The lag of a group in time: how old the first record is that it has not committed.

The protocol looks up offsets by time, not times by offset. So the batch at the committed offset is fetched, and only
its header is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from ottla.client.errors import KafkaError
from ottla.console.cluster.view import ClusterView
from ottla.protocol.api import Api
from ottla.protocol.errors import CorruptBatchError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.records import batches

# Versions that still identify topics by name; 4 is the first with batches of magic 2.
_FETCH_VERSION_MIN: Final = 4
_FETCH_VERSION_MAX: Final = 12
_TIMEOUT_S: Final = 3.0
# A broker returns at least one whole batch of the first partition, whatever the limits are. So each is asked alone.
_BATCH_BYTES: Final = 1
_PARTITIONS_MAX: Final = 64
_AT_ONCE: Final = 8
_LANE: Final = "lag"


async def time_lags(view: ClusterView, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the age in milliseconds of the records at these offsets, for as many partitions as can be asked."""
    free = asyncio.Semaphore(_AT_ONCE)
    state = await view.state()

    async def age(partition: TopicPartition, offset: int) -> int | None:
        topic = state.topics.get(partition.topic)
        known = None if topic is None else topic.partitions.get(partition.partition)
        leader = None if known is None else known.leader
        if leader is None or leader not in state.brokers:
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
                async with asyncio.timeout(_TIMEOUT_S):
                    response = await view.admin.cluster.send(
                        leader,
                        Api.FETCH,
                        request,
                        lane=_LANE,
                        version_min=_FETCH_VERSION_MIN,
                        version_max=_FETCH_VERSION_MAX,
                    )
                for answer in response.responses:
                    for part in answer.partitions:
                        for batch in batches(part.records or b""):
                            if batch.next_offset > offset and batch.base_timestamp >= 0:
                                return max(0, view.now_ms() - batch.base_timestamp)
            except (KafkaError, TimeoutError, CorruptBatchError):
                return None
        return None

    asked = list(offsets.items())[:_PARTITIONS_MAX]
    ages = await asyncio.gather(*(age(partition, offset) for partition, offset in asked))
    return {partition: found for (partition, _), found in zip(asked, ages, strict=True) if found is not None}
