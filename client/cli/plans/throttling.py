"""Limits on how fast partitions move: set when a plan starts, removed when it is done, as Kafka's own tool does it.

The topics name the throttled replicas: on the leaders' side those that there are, on the followers' side the new ones.
The brokers have the rate. Replicas that are not named are not slowed down.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ottla.client.admin.admin import Admin
from ottla.client.admin.results import ConfigResource
from ottla.protocol.config_resources import ConfigResourceType
from ottla.protocol.identifiers import TopicPartition

LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"
RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")

Replicas = Mapping[TopicPartition, Sequence[int]]


def throttles(now: Replicas, wanted: Replicas, bytes_per_second: int) -> dict[ConfigResource, dict[str, str]]:
    """Return the options of topics and brokers that slow down these moves."""
    leaders: dict[str, list[str]] = {}
    followers: dict[str, list[str]] = {}
    brokers: set[int] = set()
    for partition, replicas in wanted.items():
        old = now.get(partition, ())
        new = [each for each in replicas if each not in old]
        leaders.setdefault(partition.topic, []).extend(f"{partition.partition}:{each}" for each in old)
        followers.setdefault(partition.topic, []).extend(f"{partition.partition}:{each}" for each in new)
        brokers.update(old, replicas)
    options = {
        ConfigResource(ConfigResourceType.TOPIC, topic): {
            LEADER_REPLICAS: ",".join(leaders[topic]),
            FOLLOWER_REPLICAS: ",".join(followers[topic]),
        }
        for topic in leaders
    }
    rate = dict.fromkeys(RATES, str(bytes_per_second))
    return options | {ConfigResource(ConfigResourceType.BROKER, str(each)): dict(rate) for each in sorted(brokers)}


async def remove_throttles(admin: Admin, topics: Sequence[str]) -> bool:
    """Remove what `throttles` has set, on these topics and on all brokers; return whether there was anything."""
    brokers = (await admin.describe_cluster()).brokers
    resources = {
        **{ConfigResource(ConfigResourceType.TOPIC, topic): (LEADER_REPLICAS, FOLLOWER_REPLICAS) for topic in topics},
        **{ConfigResource(ConfigResourceType.BROKER, str(each.broker_id)): RATES for each in brokers},
    }
    described = await admin.describe_configs(
        list(resources), names=[LEADER_REPLICAS, FOLLOWER_REPLICAS, *RATES], raise_errors=False
    )
    found = {
        resource: {entry.name: None for entry in each.entries if entry.source in _OWN and entry.name in names}
        for (resource, names), each in zip(resources.items(), described, strict=True)
    }
    changes = {resource: options for resource, options in found.items() if options}
    if changes:
        await admin.alter_configs(changes)
    return bool(changes)


# Where a value stands that was set for this very topic or broker.
_OWN: Final = ("topic", "broker (dynamic)")
