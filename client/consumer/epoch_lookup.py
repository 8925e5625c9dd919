"""Detects truncation (KIP-320) by asking where an epoch ends, with OffsetForLeaderEpoch.

A new leader may lack records that the old one had returned. A position carries the epoch of the record before it. If
that epoch ends before the position in the current leader's log, the log was truncated.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ottla.client.consumer.offset_lookup import by_leader
from ottla.client.errors import KafkaError, error_for
from ottla.client.net.cluster_client import ClusterClient
from ottla.protocol.api import Api
from ottla.protocol.identifiers import CONSUMER_REPLICA_ID, TopicPartition
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

# The first version that clients may use.
_VERSION_MIN: Final = 3


class EpochEnd(NamedTuple):
    """The newest epoch up to the one asked for that the leader's log has, and where it ends; both -1 if it has none."""

    leader_epoch: int
    end_offset: int

    @property
    def is_known(self) -> bool:
        """Whether the log has such an epoch."""
        return self.leader_epoch >= 0 and self.end_offset >= 0


Ends = dict[TopicPartition, "EpochEnd | KafkaError"]


async def epoch_ends(cluster: ClusterClient, wanted: Mapping[TopicPartition, int]) -> Ends:
    """Ask the leader of each partition where an epoch ends; a failure becomes an error in the result."""
    led, leaderless = by_leader(cluster, wanted)
    found: Ends = {**leaderless}
    for answer in await asyncio.gather(*(_ask(cluster, leader, rows) for leader, rows in led.items())):
        found |= answer
    return found


async def _ask(cluster: ClusterClient, leader: int, wanted: Mapping[TopicPartition, int]) -> Ends:
    topics: dict[str, list[OffsetForLeaderPartition]] = defaultdict(list)
    for partition, epoch in wanted.items():
        known = cluster.snapshot.partition(partition)
        row = OffsetForLeaderPartition(
            partition=partition.partition,
            current_leader_epoch=-1 if known is None else known.leader_epoch,
            leader_epoch=epoch,
        )
        topics[partition.topic].append(row)
    request = OffsetForLeaderEpochRequest(
        replica_id=CONSUMER_REPLICA_ID,
        topics=[OffsetForLeaderTopic(topic=name, partitions=rows) for name, rows in topics.items()],
    )
    try:
        response = await cluster.send(leader, Api.OFFSET_FOR_LEADER_EPOCH, request, version_min=_VERSION_MIN)
    except KafkaError as error:
        return dict.fromkeys(wanted, error)
    return {
        TopicPartition(topic.topic, row.partition): _read(topic.topic, row)
        for topic in response.topics
        for row in topic.partitions
    }


def _read(topic: str, row: Any) -> EpochEnd | KafkaError:
    if row.error_code:
        return error_for(row.error_code, f"{topic}-{row.partition}")
    return EpochEnd(row.leader_epoch, row.end_offset)
