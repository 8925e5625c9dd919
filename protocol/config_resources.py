"""The types of resources that have options, as DescribeConfigs and AlterConfigs number them."""

from __future__ import annotations

from enum import IntEnum


class ConfigResourceType(IntEnum):
    """What has options. Brokers here know those of topics and brokers only."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32
