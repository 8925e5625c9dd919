"""Offsets by time, and the ends of partitions: ListOffsets, sent to the leader of each partition."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ottla.client.errors import KafkaError, LeaderNotAvailableError, error_for
from ottla.client.net.cluster_client import ClusterClient
from ottla.client.types import OffsetAndTimestamp
from ottla.protocol.api import Api
from ottla.protocol.identifiers import CONSUMER_REPLICA_ID, TopicPartition
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

# Version 0 has another response format, and no broker needs it any more.
_VERSION_MIN: Final = 1

Found = dict[TopicPartition, "OffsetAndTimestamp | KafkaError"]


def by_leader(
    cluster: ClusterClient, wanted: Mapping[TopicPartition, int]
) -> tuple[dict[int, dict[TopicPartition, int]], dict[TopicPartition, LeaderNotAvailableError]]:
    """Group requests for partitions by leader; return them, and an error for each partition without a leader."""
    led: dict[int, dict[TopicPartition, int]] = defaultdict(dict)
    leaderless = {}
    for partition, number in wanted.items():
        leader = cluster.leader(partition)
        if leader is None:
            leaderless[partition] = LeaderNotAvailableError(f"{partition} has no known leader")
        else:
            led[leader][partition] = number
    return led, leaderless


async def look_up_once(cluster: ClusterClient, wanted: Mapping[TopicPartition, int], isolation: int) -> Found:
    """Look up the offset at each timestamp; a failure becomes an error, and the offset is -1 if there is none."""
    led, leaderless = by_leader(cluster, wanted)
    found: Found = {**leaderless}
    answers = await asyncio.gather(*(_ask(cluster, leader, rows, isolation) for leader, rows in led.items()))
    for answer in answers:
        found |= answer
    if any(isinstance(one, KafkaError) and (one.invalid_metadata or one.retriable) for one in found.values()):
        cluster.request_refresh()
    return found


async def look_up(
    cluster: ClusterClient, wanted: Mapping[TopicPartition, int], isolation: int, timeout_ms: int | None = None
) -> dict[TopicPartition, OffsetAndTimestamp]:
    """Retry until all offsets are known; KafkaError after the timeout, or if a retry would not help."""
    found: dict[TopicPartition, OffsetAndTimestamp] = {}

    async def attempt() -> None:
        await cluster.metadata({partition.topic for partition in wanted})
        missing = {partition: timestamp for partition, timestamp in wanted.items() if partition not in found}
        failure: KafkaError | None = None
        for partition, one in (await look_up_once(cluster, missing, isolation)).items():
            if isinstance(one, KafkaError):
                failure = one
            else:
                found[partition] = one
        if failure is not None:
            raise failure

    await cluster.retrying(attempt, timeout_ms)
    return found


async def _ask(cluster: ClusterClient, leader: int, wanted: Mapping[TopicPartition, int], isolation: int) -> Found:
    topics: dict[str, list[ListOffsetsPartition]] = defaultdict(list)
    for partition, timestamp in wanted.items():
        known = cluster.snapshot.partition(partition)
        row = ListOffsetsPartition(
            partition_index=partition.partition,
            current_leader_epoch=-1 if known is None else known.leader_epoch,
            timestamp=timestamp,
        )
        topics[partition.topic].append(row)

    def build(version: int) -> ListOffsetsRequest:
        rows = [ListOffsetsTopic(name=name, partitions=partitions) for name, partitions in topics.items()]
        return ListOffsetsRequest(
            replica_id=CONSUMER_REPLICA_ID, isolation_level=isolation if version > _VERSION_MIN else 0, topics=rows
        )

    try:
        response = await cluster.send(leader, Api.LIST_OFFSETS, build, version_min=_VERSION_MIN)
    except KafkaError as error:
        return dict.fromkeys(wanted, error)
    return {TopicPartition(topic.name, row.partition_index): _read(topic.name, row) for topic, row in _rows(response)}


def _read(topic: str, row: Any) -> OffsetAndTimestamp | KafkaError:
    if row.error_code:
        return error_for(row.error_code, f"{topic}-{row.partition_index}")
    return OffsetAndTimestamp(row.offset, row.timestamp, None if row.leader_epoch < 0 else row.leader_epoch)


def _rows(response: Any) -> Iterable[tuple[Any, Any]]:
    return ((topic, row) for topic in response.topics for row in topic.partitions)
