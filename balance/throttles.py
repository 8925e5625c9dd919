"""Kafka's options that limit how fast partitions move.

Topics name the throttled replicas: on the leaders' side those that there are, on the followers' side the new ones.
Brokers have the rate. Replicas that are not named are not slowed down.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ottla.protocol.identifiers import TopicPartition

LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"
REPLICAS: Final = (LEADER_REPLICAS, FOLLOWER_REPLICAS)
# Options of brokers, in bytes per second.
RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")

Replicas = Mapping[TopicPartition, Sequence[int]]


def topic_throttles(now: Replicas, wanted: Replicas) -> dict[str, dict[str, str]]:
    """Return the options of topics that name the replicas of these moves."""
    options: dict[str, dict[str, list[str]]] = {}
    for partition, replicas in wanted.items():
        old = now.get(partition, ())
        topic = options.setdefault(partition.topic, {LEADER_REPLICAS: [], FOLLOWER_REPLICAS: []})
        topic[LEADER_REPLICAS] += [f"{partition.partition}:{each}" for each in old]
        topic[FOLLOWER_REPLICAS] += [f"{partition.partition}:{each}" for each in replicas if each not in old]
    return {topic: {name: ",".join(named) for name, named in lists.items()} for topic, lists in options.items()}


def throttled_brokers(now: Replicas, wanted: Replicas) -> list[int]:
    """Return the brokers that these moves copy from and to."""
    return sorted({each for partition, new in wanted.items() for each in (*now.get(partition, ()), *new)})


def rate_options(bytes_per_second: int) -> dict[str, str]:
    """Return the options of a broker for a rate."""
    return dict.fromkeys(RATES, str(bytes_per_second))
