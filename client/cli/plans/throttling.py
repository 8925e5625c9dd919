"""Limits on how fast partitions move: set when a plan starts, removed when it is done, as Kafka's own tool does it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla.balance.throttles import (
    FOLLOWER_REPLICAS,
    LEADER_REPLICAS,
    RATES,
    Replicas,
    rate_options,
    throttled_brokers,
    topic_throttles,
)
from ottla.client.admin.admin import Admin
from ottla.client.admin.results import ConfigResource
from ottla.protocol.config_resources import ConfigResourceType


def throttles(now: Replicas, wanted: Replicas, bytes_per_second: int) -> dict[ConfigResource, dict[str, str]]:
    """Return the options of topics and brokers that slow down these moves."""
    topics = {
        ConfigResource(ConfigResourceType.TOPIC, topic): options
        for topic, options in topic_throttles(now, wanted).items()
    }
    return topics | {
        ConfigResource(ConfigResourceType.BROKER, str(each)): rate_options(bytes_per_second)
        for each in throttled_brokers(now, wanted)
    }


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
