"""What the sources ask of a cluster: its partitions, offsets by time, and the records of a range.

Spark calls from threads without an event loop, so all of it runs on one in the background. A process keeps its
clients: Spark's workers are used for many tasks, and a planner for every trigger of its stream.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from typing import TypeAlias, TypeVar

from ottla.client.consumer.offset_lookup import look_up
from ottla.client.consumer.settings import ConsumerSettings
from ottla.client.errors import UnknownTopicOrPartitionError, error_for
from ottla.client.net.cluster_client import ClusterClient
from ottla.client.net.metadata import ClusterMetadata
from ottla.client.sync.loop_thread import LoopThread
from ottla.pipeline.sources.kafka_options import reader_settings
from ottla.pipeline.sources.options import TopicSubscription
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition

T = TypeVar("T")

_Key: TypeAlias = tuple[int, tuple[tuple[str, str], ...]]

# With the process id, as connections do not survive a fork.
_shared: dict[_Key, TopicClient] = {}


class TopicClient:
    """A connection to one cluster; its methods block, and may be called from any thread."""

    def __init__(self, settings: ConsumerSettings) -> None:
        self.settings = settings
        self._thread = LoopThread.acquire()
        try:
            self.cluster = self._thread.call(self._started())
        except BaseException:
            self._thread.release()
            raise

    @classmethod
    def shared(cls, config: Mapping[str, str]) -> TopicClient:
        """Return the client of this process for a configuration."""
        key = _key(config)
        if key not in _shared:
            _shared[key] = cls(reader_settings(config))
        return _shared[key]

    @classmethod
    def close_shared(cls, config: Mapping[str, str]) -> None:
        """Close the client of this process for a configuration, if there is one."""
        client = _shared.pop(_key(config), None)
        if client is not None:
            client.close()

    def close(self) -> None:
        """Close the connections."""
        try:
            self._thread.call(self.cluster.close())
        finally:
            self._thread.release()

    def submit(self, work: Callable[[ClusterClient], Awaitable[T]]) -> Future[T]:
        """Have work done on the event loop, without waiting for it."""

        async def run() -> T:
            return await work(self.cluster)

        return self._thread.submit(run())

    def partitions(self, subscription: TopicSubscription) -> set[TopicPartition]:
        """Return the partitions that there are; those of topics that do not exist are missing."""
        metadata = self.submit(lambda cluster: _metadata(cluster, subscription)).result()
        found = set()
        for name, topic in metadata.topics.items():
            if topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            if subscription.pattern is not None:
                if topic.is_internal or re.fullmatch(subscription.pattern, name) is None:
                    continue
            elif topic.error is not ErrorCode.NONE:
                raise error_for(topic.error, f"topic {name}")
            found |= {TopicPartition(name, number) for number in topic.partitions}
        return {partition for partition in found if subscription.matches(partition)}

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the first offset at or after each timestamp, -1 where there is none; or an end of the log.

        Partitions whose topic does not exist any more are missing from what is returned.
        """
        if not wanted:
            return {}
        try:
            return self.submit(lambda _: self.look_up(wanted)).result()
        except UnknownTopicOrPartitionError:
            there = self.partitions(TopicSubscription(topics=frozenset(partition.topic for partition in wanted)))
            if there >= wanted.keys():
                raise
            # Less is wanted each time, so this ends.
            return self.offsets({each: timestamp for each, timestamp in wanted.items() if each in there})

    async def look_up(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Do the same on the event loop, where a topic that does not exist is an error."""
        # Only of topics that are kept does the client ask again who leads them now.
        self.cluster.add_topics({partition.topic for partition in wanted})
        found = await look_up(self.cluster, wanted, self.settings.isolation)
        return {partition: one.offset for partition, one in found.items()}

    async def _started(self) -> ClusterClient:
        cluster = ClusterClient(self.settings)
        await cluster.start()
        return cluster


async def _metadata(cluster: ClusterClient, subscription: TopicSubscription) -> ClusterMetadata:
    """Ask the cluster, as topics and partitions come and go; wait for a topic that is just being made."""
    if subscription.topics is not None:
        topics = set(subscription.topics)
    else:
        topics = {partition.topic for partition in subscription.partitions or ()}

    async def ask() -> ClusterMetadata:
        metadata = await cluster.metadata(topics or None, force=True)
        for name in topics:
            found = metadata.topics[name]
            if found.error is not ErrorCode.NONE and found.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise error_for(found.error, f"topic {name}")
        return metadata

    metadata: ClusterMetadata = await cluster.retrying(ask)
    # Others that the client knows of are not meant.
    return metadata.without(set(metadata.topics) - topics) if topics else metadata


def _key(config: Mapping[str, str]) -> _Key:
    return os.getpid(), tuple(sorted(config.items()))
