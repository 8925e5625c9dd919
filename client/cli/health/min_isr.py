"""How many replicas of a topic must be in sync for acks=all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla.client.admin.admin import Admin
from ottla.client.admin.results import ConfigResource
from ottla.protocol.config_resources import ConfigResourceType

_MIN_ISR: Final = "min.insync.replicas"
# Brokers bound the entries of a request.
_TOPICS_AT_ONCE: Final = 500


async def min_isr_by_topic(admin: Admin, topics: Sequence[str]) -> dict[str, int]:
    """Return min.insync.replicas of topics; those whose options the caller may not read are left out."""
    found = {}
    for start in range(0, len(topics), _TOPICS_AT_ONCE):
        part = topics[start : start + _TOPICS_AT_ONCE]
        resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in part]
        for described in await admin.describe_configs(resources, names=[_MIN_ISR], raise_errors=False):
            value = next((entry.value for entry in described.entries if entry.name == _MIN_ISR), None)
            if value is not None and value.isdigit():
                found[described.resource_name] = int(value)
    return found
