"""The fetchers of this broker: one for each leader that it follows, or several if that is configured.

    fetcher of a partition = abs(31 * hash of the topic + partition) mod `num.replica.fetchers`

as in Kafka; the hash is Java's. A fetcher starts with its first partition, and ends with its last one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from ottla.broker.config import BrokerConfig
from ottla.broker.replication.follower.fetcher import Fetcher, FollowedPartition
from ottla.broker.replication.follower.leader_client import LeaderClient
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.throttle import ReplicationThrottle
from ottla.broker.storage.logs import Logs
from ottla.broker.storage.maintenance.group_commit import GroupCommit
from ottla.client.net.connector import IN_THE_CLEAR, Connector
from ottla.protocol.identifiers import TopicPartition

_STOP_SECONDS_MAX: Final = 10.0


class Fetchers:
    """Which partition is copied from which leader. Any thread that holds no partition's lock may call it."""

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        node_id: int,
        broker_epoch: Callable[[], int],
        endpoint_of: Callable[[int], tuple[str, int] | None],
        logs: Logs,
        group_commit: GroupCommit,
        throttle: ReplicationThrottle | None = None,
        connector: Connector = IN_THE_CLEAR,
    ) -> None:
        """`endpoint_of` returns the address of a broker, or None if it is not known."""
        self._config = config
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._endpoint_of = endpoint_of
        self._logs = logs
        self._group_commit = group_commit
        self._throttle = throttle
        self._connector = connector
        # All fields below are under the lock, which is never held while a log is written.
        self._lock = threading.Lock()
        self._is_running = False
        self._is_stopped = False
        # By leader and fetcher number.
        self._fetchers: dict[tuple[int, int], Fetcher] = {}
        self._places: dict[TopicPartition, tuple[int, int]] = {}

    def __repr__(self) -> str:
        return f"<Fetchers partitions={len(self._places)} threads={len(self._fetchers)}>"

    def start(self) -> None:
        """Start the fetchers, and let later additions start theirs."""
        with self._lock:
            self._is_running = True
            for fetcher in self._fetchers.values():
                fetcher.start()

    def stop(self) -> None:
        """Stop all fetchers. When this returns, nothing more is written."""
        with self._lock:
            self._is_stopped = True
            ended = list(self._fetchers.values())
            self._fetchers.clear()
            self._places.clear()
        for fetcher in ended:
            fetcher.close()
        for followed in [followed for fetcher in ended for followed in fetcher.followed()]:
            followed.retire()
        deadline = time.monotonic() + _STOP_SECONDS_MAX
        for fetcher in ended:
            fetcher.join(max(0.0, deadline - time.monotonic()))

    def add(self, partition: Partition, leader_id: int) -> None:
        """Follow a leader in the epoch of the partition's role, in place of the leader before.

        If the partition already follows it in this epoch, nothing happens: the controller also sends ISR changes.
        """
        name = partition.partition
        place = (leader_id, fetcher_number(name, self._config().num_replica_fetchers))
        if self._places.get(name) not in (None, place):
            self.remove(name)
        with self._lock:
            if self._is_stopped:
                return
            fetcher = self._fetchers.get(place)
            if fetcher is None:
                fetcher = self._fetchers[place] = self._made(*place)
            self._places[name] = place
            known = fetcher.find(name)
            if known is not None and not known.is_stopped and known.is_same(partition):
                return
            replaced = fetcher.add(FollowedPartition(partition))
        if replaced is not None:
            replaced.retire()

    def remove(self, partition: TopicPartition) -> None:
        """Stop following. When this returns, no fetcher writes to the partition any more."""
        with self._lock:
            place = self._places.pop(partition, None)
            if place is None:
                return
            fetcher = self._fetchers[place]
            removed = fetcher.remove(partition)
            is_idle = len(fetcher) == 0
            if is_idle:
                del self._fetchers[place]
        if removed is not None:
            removed.retire()
        if is_idle:
            fetcher.close()

    def resume_copies(self) -> None:
        """Fetch partitions again that wait for space, because a disk has more of it."""
        with self._lock:
            fetchers = list(self._fetchers.values())
        for fetcher in fetchers:
            fetcher.resume_copies()

    def lags(self) -> dict[TopicPartition, int]:
        """Return how many committed records each partition lacks, as far as we know."""
        return {followed.name: followed.lag for followed in self._followed()}

    def failing(self) -> int:
        """Return the number of partitions whose last fetch failed."""
        return sum(followed.failures > 0 for followed in self._followed())

    def waiting_for_space(self) -> int:
        """Return the number of partitions that are not copied, because their disk has too little space."""
        return sum(followed.waits_for_space for followed in self._followed())

    def _followed(self) -> list[FollowedPartition]:
        with self._lock:
            fetchers = list(self._fetchers.values())
        return [followed for fetcher in fetchers for followed in fetcher.followed()]

    def _made(self, leader_id: int, number: int) -> Fetcher:
        name = f"fetcher-{number}-of-{leader_id}"
        config = self._config()
        client_id = f"broker-{self._node_id}-fetcher-{number}"
        leader = LeaderClient(
            leader_id, self._node_id, self._broker_epoch, self._endpoint_of, config, client_id, self._connector
        )
        fetcher = Fetcher(name, leader, config, self._logs, self._group_commit, self._throttle)
        if self._is_running:
            fetcher.start()
        return fetcher


def fetcher_number(partition: TopicPartition, fetchers: int) -> int:
    """Return the number of the fetcher that copies a partition, among those of the same leader."""
    topic_hash = 0
    for character in partition.topic:
        topic_hash = topic_hash * 31 + ord(character)
    spread = _as_int32(31 * topic_hash + partition.partition)
    # Kafka's helper returns 0 for the absolute value of Java's smallest number.
    return (0 if spread == -(2**31) else abs(spread)) % fetchers


def _as_int32(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31
