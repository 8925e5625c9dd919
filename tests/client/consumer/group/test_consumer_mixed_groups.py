"""Sticky assignors in one group with members of other clients, whoever leads: claims are read and written alike."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from tests.client.consumer.consuming import (
    SESSION_TIMEOUT_MS,
    create_topic,
    group_name,
    member,
    partitions_of,
    produce,
    read,
)
from tests.kit.broker_process import BrokerProcess
from tests.kit.waiting import until_async


class Librdkafka:
    """A consumer of librdkafka that is polled in a thread of its own."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "partition.assignment.strategy": "cooperative-sticky",
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": 100,
                "auto.offset.reset": "earliest",
            }
        )
        self._topic = topic
        self._polling: asyncio.Task[None] | None = None
        self.values: list[bytes] = []

    async def start(self) -> None:
        """Join."""
        self._consumer.subscribe([self._topic])
        self._polling = asyncio.create_task(self._poll())

    async def stop(self) -> None:
        """Leave."""
        assert self._polling is not None
        self._polling.cancel()
        await asyncio.wait([self._polling])
        await asyncio.to_thread(self._consumer.close)

    def assignment(self) -> set[tuple[str, int]]:
        """Return the partitions that it has."""
        return {(row.topic, row.partition) for row in self._consumer.assignment()}

    async def _poll(self) -> None:
        while True:
            message = await asyncio.to_thread(self._consumer.poll, 0.05)
            if message is not None and message.error() is None:
                self.values.append(message.value() or b"")


@pytest.mark.parametrize("ours_first", [True, False])
async def test_cooperative_sticky_with_librdkafka(broker: BrokerProcess, topic: str, ours_first: bool) -> None:
    """Each has its half, every record comes to one of them, and who stays has all again."""
    await create_topic(broker.bootstrap, topic, 4)
    everything, group = partitions_of(topic, 4), group_name()
    ours = member(broker.bootstrap, group, topic, partition_assignment_strategy=["cooperative-sticky"])
    theirs = Librdkafka(broker.bootstrap, group, topic)
    async with AsyncExitStack() as stack:
        pair: tuple[Any, Any] = (ours, theirs) if ours_first else (theirs, ours)
        await pair[0].start()
        stack.push_async_callback(pair[0].stop)
        await until_async(lambda: pair[0].assignment() == everything)
        async with AsyncExitStack() as guest:
            await pair[1].start()
            guest.push_async_callback(pair[1].stop)
            await until_async(lambda: len(pair[0].assignment()) == len(pair[1].assignment()) == 2)
            assert pair[0].assignment() | pair[1].assignment() == everything
            for number in range(4):
                await produce(broker.bootstrap, topic, [b"%d" % number], number)
            mine = await read(ours, 2)
            await until_async(lambda: len(theirs.values) == 2)
            assert sorted(mine + theirs.values) == [b"%d" % number for number in range(4)]
        await until_async(lambda: pair[0].assignment() == everything)


@pytest.mark.parametrize("ours_first", [True, False])
async def test_sticky_with_aiokafka(broker: BrokerProcess, topic: str, ours_first: bool) -> None:
    """When a third member comes, the two that were there keep all but what it gets."""
    await create_topic(broker.bootstrap, topic, 6)
    everything, group = partitions_of(topic, 6), group_name()

    def our_member() -> Any:
        return member(broker.bootstrap, group, topic, partition_assignment_strategy=["sticky"])

    ours = our_member()
    theirs = AIOKafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        group_id=group,
        partition_assignment_strategy=[StickyPartitionAssignor],
        heartbeat_interval_ms=100,
        session_timeout_ms=SESSION_TIMEOUT_MS,
    )
    async with AsyncExitStack() as stack:
        for consumer in (ours, theirs) if ours_first else (theirs, ours):
            await consumer.start()
            stack.push_async_callback(consumer.stop)
            await until_async(consumer.assignment)
        await until_async(lambda: len(ours.assignment()) == len(theirs.assignment()) == 3)
        before = {"ours": ours.assignment(), "theirs": set(theirs.assignment())}
        assert before["ours"] | before["theirs"] == everything
        third = our_member()
        await third.start()
        stack.push_async_callback(third.stop)
        await until_async(lambda: {len(one.assignment()) for one in (ours, theirs, third)} == {2})
        assert ours.assignment() < before["ours"]
        assert set(theirs.assignment()) < before["theirs"]
