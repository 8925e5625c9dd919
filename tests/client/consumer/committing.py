"""A listener that commits what the caller has, at the last moment: when the consumer leaves its group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tests.client.consumer.consuming import create_topic, group_name, partitions_of, produce, read

from ottla.client.consumer.consumer import Consumer
from ottla.client.consumer.rebalance_listener import ConsumerRebalanceListener
from ottla.client.types import TopicPartition

BY_HAND: Final[dict[str, Any]] = {"enable_auto_commit": False}


class Committing(ConsumerRebalanceListener):
    """Commits where the consumer is, and notes what was revoked."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self.revoked: set[TopicPartition] = set()

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        await self._consumer.commit({partition: await self._consumer.position(partition) for partition in revoked})
        self.revoked |= revoked

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        pass


async def committing_at_the_end(topic: str, way: str, make: Callable[[str], Consumer]) -> None:
    """Read half, leave in the given way, and see that the next member goes on with the other half."""
    group = group_name()
    consumer = make(group)
    bootstrap = str(consumer.settings.bootstrap_servers)
    await create_topic(bootstrap, topic)
    await produce(bootstrap, topic, [b"%d" % number for number in range(6)])
    listener = Committing(consumer)
    async with consumer:
        consumer.subscribe([topic], listener=listener)
        assert await read(consumer, 3) == [b"0", b"1", b"2"]
        if way == "unsubscribe":
            await consumer.unsubscribe()
            assert listener.revoked == partitions_of(topic, 1)
    assert listener.revoked == partitions_of(topic, 1)
    async with make(group) as successor:
        successor.subscribe([topic])
        assert await read(successor, 3) == [b"3", b"4", b"5"]
