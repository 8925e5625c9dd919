"""The options of the broker and of every topic as they are now: its file, dynamic options, overrides of topics."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping

from ottla.broker.config import BrokerConfig, TopicConfig


class CurrentConfigs:
    """Options that may change while the broker runs. Thread-safe; reading needs no lock.

    The options of the broker are one object until they change, and so are those of a topic.
    """

    def __init__(self, config: BrokerConfig, overrides: Mapping[str, Mapping[str, str]]) -> None:
        self._lock = threading.Lock()
        self._broker = config
        self._overrides = dict(overrides)
        self._made: dict[str, TopicConfig] = {}

    def __iter__(self) -> Iterator[str]:
        """Give the topics that have options of their own."""
        return iter(list(self._overrides))

    def broker(self) -> BrokerConfig:
        """Return the options of the broker."""
        return self._broker

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
