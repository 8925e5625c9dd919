"""The options of every topic as they are now, for logs and handlers: broker defaults, dynamic options, overrides.

The options of a topic are one object until they change; the log of each of its partitions is then told.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping

from ottla.broker.config import BrokerConfig, TopicConfig


class TopicConfigs:
    """Options by topic. Thread-safe; reading needs no lock."""

    def __init__(self, config: BrokerConfig, overrides: Mapping[str, Mapping[str, str]]) -> None:
        self._lock = threading.Lock()
        self._broker = config
        self._overrides = dict(overrides)
        self._made: dict[str, TopicConfig] = {}

    def __iter__(self) -> Iterator[str]:
        """Give the topics that have options of their own."""
        return iter(list(self._overrides))

    def of(self, topic: str) -> TopicConfig:
        """Return the options of a topic."""
        known = self._made.get(topic)
        if known is None:
            with self._lock:
                known = self._made.get(topic)
                if known is None:
                    known = self._made[topic] = TopicConfig(self._broker, self._overrides.get(topic))
        return known

    def set_overrides(self, topic: str, overrides: Mapping[str, str]) -> None:
        """Take what is set for a topic now."""
        with self._lock:
            if overrides:
                self._overrides[topic] = dict(overrides)
            else:
                self._overrides.pop(topic, None)
            self._made.pop(topic, None)

    def set_broker(self, config: BrokerConfig) -> None:
        """Take the broker's options as they are now."""
        with self._lock:
            self._broker = config
            self._made.clear()
