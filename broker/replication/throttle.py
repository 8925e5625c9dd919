"""Throttles of replication: limits for reassignments and for brokers that catch up.

        leader.replication.throttled.rate, follower.replication.throttled.rate            bytes per second, of a broker
        leader.replication.throttled.replicas, follower.replication.throttled.replicas    which replicas, of a topic

A replica is throttled if its topic names its partition together with this broker, or all partitions with `*`. While
more bytes were copied in the last seconds than the rate allows, leaders send no records of throttled partitions to
followers outside the ISR, and followers do not fetch throttled partitions in which they lag. A leader never throttles
members of the ISR, because they would fall out of it. All bytes of throttled partitions count, for every receiver.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from enum import Enum
from typing import Final

from ottla.broker.common.rate import Rate
from ottla.broker.config import BrokerConfig, TopicConfig
from ottla.broker.config.option import LONG_MAX
from ottla.protocol.identifiers import TopicPartition

_ALL: Final = "*"


class Side(Enum):
    """The side of a copy."""

    LEADER = "leader"
    FOLLOWER = "follower"


class ReplicationThrottle:
    """The throttle of one side. Thread-safe; `is_throttled` takes no lock."""

    def __init__(
        self,
        side: Side,
        node_id: int,
        clock: Callable[[], float] = time.monotonic,
        *,
        samples_max: int = 11,
        sample_seconds: float = 1.0,
    ) -> None:
        """`clock` returns seconds. The rate is measured over the last `samples_max` samples."""
        self._side = side
        self._node_id = node_id
        self._clock = clock
        self._sample_ms = sample_seconds * 1000
        self._window_ms = samples_max * self._sample_ms
        # Throttled partitions by topic; None means all partitions.
        self._topics: dict[str, frozenset[int] | None] = {}
        self._lock = threading.Lock()
        self._limit = LONG_MAX
        self._copied = Rate(samples_max, self._sample_ms)

    def __repr__(self) -> str:
        return f"<ReplicationThrottle {self._side.value} rate={self._limit} topics={len(self._topics)}>"

    def configure(self, rate: int) -> None:
        """Set the limit, in bytes per second."""
        self._limit = rate

    def set_topic(self, topic: str, text: str) -> None:
        """Set which replicas of a topic are throttled: `*`, or partition:broker separated by commas."""
        throttled = _partitions(text, self._node_id)
        if throttled is None or throttled:
            self._topics[topic] = throttled
        else:
            self._topics.pop(topic, None)

    def is_throttled(self, partition: TopicPartition) -> bool:
        """Whether this broker's replica of a partition is throttled."""
        if partition.topic not in self._topics:
            return False
        throttled = self._topics.get(partition.topic, frozenset())
        return throttled is None or partition.partition in throttled

    def record(self, size: int) -> None:
        """Count bytes of throttled partitions that were sent or received."""
        if size <= 0:
            return
        with self._lock:
            self._copied.record(size, self._clock() * 1000)

    def is_exceeded(self) -> bool:
        """Whether more was copied than the rate allows."""
        return self.pause_seconds() > 0

    def pause_seconds(self) -> float:
        """Return how long to pause until the rate is within the limit; 0 if it is."""
        limit = self._limit
        if limit >= LONG_MAX:
            return 0.0
        with self._lock:
            now_ms = self._clock() * 1000
            total = self._copied.total(now_ms)
            elapsed_ms = self._copied.elapsed_ms(now_ms)
        # Shorter than Rate's own window, as in Kafka: a throttle must stop a burst within its first second. A sample
        # that has just begun counts as a whole one.
        if total * 1000 <= limit * max(elapsed_ms, self._sample_ms):
            return 0.0
        # At the end of the window the oldest sample no longer counts.
        allowed_after_ms = min(total * 1000 / limit, self._window_ms) if limit else self._window_ms
        return (allowed_after_ms - elapsed_ms) / 1000


class Throttles:
    """The throttles of both sides, set by the options of the broker and of topics."""

    def __init__(self, node_id: int, config: BrokerConfig, clock: Callable[[], float] = time.monotonic) -> None:
        def made(side: Side) -> ReplicationThrottle:
            return ReplicationThrottle(
                side,
                node_id,
                clock,
                samples_max=config.replication_quota_window_num,
                sample_seconds=config.replication_quota_window_size_seconds,
            )

        self.leader = made(Side.LEADER)
        self.follower = made(Side.FOLLOWER)
        self.configure(config)

    def configure(self, config: BrokerConfig) -> None:
        """Apply the broker's current options."""
        self.leader.configure(config.leader_replication_throttled_rate)
        self.follower.configure(config.follower_replication_throttled_rate)

    def set_topic(self, topic: str, config: TopicConfig) -> None:
        """Apply a topic's current options."""
        self.leader.set_topic(topic, ",".join(config.leader_replication_throttled_replicas))
        self.follower.set_topic(topic, ",".join(config.follower_replication_throttled_replicas))


def _partitions(text: str, node_id: int) -> frozenset[int] | None:
    """Return the partitions whose replica on this broker is throttled; None for all."""
    if text.strip() == _ALL:
        return None
    pairs = [each.strip().split(":") for each in text.split(",") if each.strip()]
    # The text was checked when it was set; invalid items name no partition.
    numbers = [(int(pair[0]), int(pair[1])) for pair in pairs if len(pair) == 2 and all(map(str.isdecimal, pair))]
    return frozenset(partition for partition, broker in numbers if broker == node_id)
