"""How much partitions hold, and how fast they grow: by two looks at their offsets and files."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ottla.client.admin.admin import Admin
from ottla.client.admin.results import OffsetSpec, Result, TopicDescription
from ottla.client.errors import KafkaError
from ottla.protocol.identifiers import TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionSize(Result):
    """The records and bytes of the leader's replica, and how many come per second; None if that is not known."""

    records: int | None = None
    size_bytes: int | None = None
    records_per_second: float | None = None
    bytes_per_second: float | None = None


@dataclass(frozen=True, slots=True)
class _Look:
    at: float
    starts: dict[TopicPartition, int]
    ends: dict[TopicPartition, int]
    sizes: dict[TopicPartition, int]


async def sizes_of(
    admin: Admin, topics: Sequence[TopicDescription], rate_seconds: float | None
) -> dict[TopicPartition, PartitionSize]:
    """Return the sizes of all partitions; with `rate_seconds`, look again after that time for the rates."""
    first = await _look(admin, topics)
    last = first
    if rate_seconds is not None:
        await asyncio.sleep(rate_seconds)
        last = await _look(admin, topics)
    return {
        (partition := TopicPartition(topic.name, each.partition)): _size(partition, first, last)
        for topic in topics
        for each in topic.partitions
    }


async def _look(admin: Admin, topics: Sequence[TopicDescription]) -> _Look:
    at = time.monotonic()
    leaders = _leaders(topics)
    starts, ends, sizes = await asyncio.gather(
        _offsets(admin, leaders, OffsetSpec.EARLIEST),
        _offsets(admin, leaders, OffsetSpec.LATEST),
        _sizes(admin, leaders),
    )
    return _Look(at, starts, ends, sizes)


async def _offsets(admin: Admin, partitions: Iterable[TopicPartition], spec: int) -> dict[TopicPartition, int]:
    found = await admin.list_offsets(dict.fromkeys(partitions, spec), raise_errors=False)
    return {TopicPartition(each.topic, each.partition): each.offset for each in found if each.error is None}


async def _sizes(admin: Admin, leaders: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the bytes of the leaders' replicas; nothing if we may not ask, which takes a right on the cluster."""
    try:
        found = await admin.describe_log_dirs(list(leaders), raise_errors=False)
    except KafkaError:
        return {}
    return {
        partition: replica.size_bytes
        for log_dir in found
        for replica in log_dir.replicas
        if not replica.is_future
        and leaders.get(partition := TopicPartition(replica.topic, replica.partition)) == log_dir.broker_id
    }


def _leaders(topics: Sequence[TopicDescription]) -> dict[TopicPartition, int]:
    """Return the leaders of partitions that have one."""
    return {
        TopicPartition(topic.name, each.partition): each.leader
        for topic in topics
        for each in topic.partitions
        if each.leader is not None
    }


def _size(partition: TopicPartition, first: _Look, last: _Look) -> PartitionSize:
    end, size = last.ends.get(partition), last.sizes.get(partition)
    start = last.starts.get(partition)
    records = None if end is None or start is None else end - start
    if first is last:
        return PartitionSize(records, size)
    seconds = max(last.at - first.at, 0.001)
    before, size_before = first.ends.get(partition), first.sizes.get(partition)
    return PartitionSize(
        records,
        size,
        None if end is None or before is None else max(0, end - before) / seconds,
        # Retention may have deleted more than was written.
        None if size is None or size_before is None else max(0, size - size_before) / seconds,
    )
