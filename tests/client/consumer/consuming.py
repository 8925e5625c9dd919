"""What tests of the consumer on a real broker share."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

from tests.kit.waiting import until_async

from ottla.client.consumer.consumer import Consumer
from ottla.client.errors import raise_for
from ottla.client.net.cluster_client import ClusterClient
from ottla.client.net.settings import ClientSettings
from ottla.client.producer.producer import Producer
from ottla.client.types import TopicPartition
from ottla.protocol.api import Api
from ottla.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest

# The least that a broker allows by default.
SESSION_TIMEOUT_MS = 6_000


def group_name() -> str:
    """Return a name that no other group has."""
    return f"group-{uuid.uuid4().hex}"


def partitions_of(topic: str, count: int) -> set[TopicPartition]:
    """Return all partitions of a topic."""
    return {TopicPartition(topic, number) for number in range(count)}


def member(bootstrap: str, group: str, *topics: str, **settings: Any) -> Consumer:
    """Return a consumer that is quick to notice changes."""
    quick: dict[str, Any] = {
        "auto_offset_reset": "earliest",
        "heartbeat_interval_ms": 100,
        "session_timeout_ms": SESSION_TIMEOUT_MS,
        "fetch_max_wait_ms": 100,
    }
    return Consumer(*topics, bootstrap_servers=bootstrap, group_id=group, **(quick | settings))


async def create_topic(bootstrap: str, topic: str, partitions: int = 1) -> None:
    """Create a topic and wait for its leaders."""
    row = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
    async with ClusterClient(ClientSettings(bootstrap_servers=bootstrap)) as cluster:
        response = await cluster.send_controller(Api.CREATE_TOPICS, CreateTopicsRequest(topics=[row]))
        raise_for(response.topics[0].error_code)
        await until_async(lambda: _has_leaders(cluster, topic, partitions))


async def add_partitions(bootstrap: str, topic: str, count: int) -> None:
    """Give a topic more partitions."""
    row = CreatePartitionsTopic(name=topic, count=count, assignments=None)
    request = CreatePartitionsRequest(topics=[row], timeout_ms=30_000, validate_only=False)
    async with ClusterClient(ClientSettings(bootstrap_servers=bootstrap)) as cluster:
        response = await cluster.send_controller(Api.CREATE_PARTITIONS, request)
        raise_for(response.results[0].error_code)
        await until_async(lambda: _has_leaders(cluster, topic, count))


async def _has_leaders(cluster: ClusterClient, topic: str, partitions: int) -> bool:
    metadata = await cluster.metadata([topic], force=True)
    return all(metadata.leader(TopicPartition(topic, number)) is not None for number in range(partitions))


async def produce(bootstrap: str, topic: str, values: Iterable[bytes], partition: int = 0) -> None:
    """Write values to a partition."""
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for value in values:
            await producer.send(topic, value, partition=partition)


async def read(consumer: Consumer, count: int) -> list[bytes]:
    """Read this many values."""
    values: list[bytes] = []
    while len(values) < count:
        for records in (await consumer.getmany(timeout_ms=1000, max_records=count - len(values))).values():
            values += [record.value or b"" for record in records]
    return values
