"""Which topics take the most space in a log directory, and what keeps their records."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from ottla.broker.config import TopicConfig
from ottla.broker.storage.log_dir import LogDir
from ottla.broker.storage.logs import Logs


class TopicSize(NamedTuple):
    """The bytes of a topic in one log directory, and how long its options keep them."""

    topic: str
    size_bytes: int
    kept: str


def largest_topics(logs: Logs, log_dir: LogDir) -> list[TopicSize]:
    """Return the topics in a directory, largest first."""
    sizes: Counter[str] = Counter()
    for log in logs.in_dir(log_dir):
        sizes[log.partition.topic] += log.size
    return [TopicSize(topic, size, _kept(logs.config_of(topic))) for topic, size in sizes.most_common()]


def _kept(config: TopicConfig) -> str:
    if "delete" not in config.cleanup_policy:
        return "compacted, never deleted"
    limits = []
    if config.retention_ms >= 0:
        limits.append(f"retention.ms={config.retention_ms}")
    if config.retention_bytes >= 0:
        limits.append(f"retention.bytes={config.retention_bytes} a partition")
    return ", ".join(limits) or "kept forever"
