"""Consumers of groups of the new protocol (KIP-848), on a real broker: ours, and together with librdkafka's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from tests.client.consumer.committing import BY_HAND, committing_at_the_end
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
from tests.kit.zookeeper import ZooKeeper, ZooKeeperServer

from ottla.client.consumer.consumer import Consumer


@pytest.fixture(scope="module")
def broker(zookeeper_server: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that wants to hear from members often, and does not wait long for silent ones."""
    options = (
        f"group.consumer.min.session.timeout.ms={SESSION_TIMEOUT_MS}",
        f"group.consumer.session.timeout.ms={SESSION_TIMEOUT_MS}",
        "group.consumer.min.heartbeat.interval.ms=100",
        "group.consumer.heartbeat.interval.ms=100",
    )
    own = BrokerProcess(tmp_path_factory.mktemp("broker"), ZooKeeper(zookeeper_server).connect, *options)
    own.start_on_free_ports()
    try:
        yield own
    finally:
        own.kill()


def new_member(broker: BrokerProcess, group: str, *topics: str, **settings: Any) -> Consumer:
    """Return a consumer of the new protocol."""
    return member(broker.bootstrap, group, *topics, group_protocol="consumer", **settings)


async def test_two_members_share_the_partitions(broker: BrokerProcess, topic: str) -> None:
    """A second member gets its part, every record comes to one of them, and the first has all again when it leaves."""
    await create_topic(broker.bootstrap, topic, 6)
    everything, group = partitions_of(topic, 6), group_name()
    async with new_member(broker, group, topic) as first:
        await until_async(lambda: first.assignment() == everything)
        async with new_member(broker, group, topic) as second:
            await until_async(lambda: len(second.assignment()) == 3)
            assert first.assignment() | second.assignment() == everything
            assert not first.assignment() & second.assignment()
            for number in range(6):
                await produce(broker.bootstrap, topic, [b"%d" % number], number)
            halves = await asyncio.gather(read(first, 3), read(second, 3))
            assert sorted(halves[0] + halves[1]) == [b"%d" % number for number in range(6)]
            await first.commit()
        await until_async(lambda: first.assignment() == everything)
        await produce(broker.bootstrap, topic, [b"after"])
        assert await read(first, 1) == [b"after"]


async def test_commits_survive_and_a_new_member_goes_on(broker: BrokerProcess, topic: str) -> None:
    """What a member was done with is where the next one begins."""
    await create_topic(broker.bootstrap, topic)
    await produce(broker.bootstrap, topic, [b"%d" % number for number in range(10)])
    group = group_name()
    async with new_member(broker, group, topic) as consumer:
        assert await read(consumer, 4) == [b"0", b"1", b"2", b"3"]
    async with new_member(broker, group, topic) as consumer:
        assert await read(consumer, 2) == [b"4", b"5"]


async def test_a_member_of_librdkafka_takes_part(broker: BrokerProcess, topic: str) -> None:
    """Both have their parts, and ours has all again when the other leaves."""
    await create_topic(broker.bootstrap, topic, 4)
    everything, group = partitions_of(topic, 4), group_name()
    async with new_member(broker, group, topic) as ours:
        await until_async(lambda: ours.assignment() == everything)
        options = {"bootstrap.servers": broker.bootstrap, "group.id": group, "group.protocol": "consumer"}
        theirs = confluent_kafka.Consumer(options)
        try:
            theirs.subscribe([topic])

            async def has_two() -> bool:
                await asyncio.to_thread(theirs.poll, 0.05)
                return len(theirs.assignment()) == 2

            await until_async(has_two)
            assert len(ours.assignment()) == 2
        finally:
            await asyncio.to_thread(theirs.close)
        await until_async(lambda: ours.assignment() == everything)


async def test_a_slow_caller_loses_its_partitions_and_comes_back(broker: BrokerProcess, topic: str) -> None:
    """After max_poll_interval_ms without a call the member leaves; it joins again with the next call."""
    await create_topic(broker.bootstrap, topic)
    await produce(broker.bootstrap, topic, [b"x"])
    async with new_member(broker, group_name(), topic, max_poll_interval_ms=500) as consumer:
        await read(consumer, 1)
        await until_async(lambda: consumer.assignment() == set())
        assert await read(consumer, 1) == [b"x"]


async def test_the_subscription_can_change(broker: BrokerProcess, topic: str) -> None:
    """Partitions of a topic that is not subscribed to any more go, those of a new one come."""
    await create_topic(broker.bootstrap, topic)
    await create_topic(broker.bootstrap, f"{topic}-other", 2)
    async with new_member(broker, group_name(), topic) as consumer:
        await until_async(lambda: consumer.assignment() == partitions_of(topic, 1))
        consumer.subscribe([f"{topic}-other"])
        await until_async(lambda: consumer.assignment() == partitions_of(f"{topic}-other", 2))


@pytest.mark.parametrize("way", ["unsubscribe", "stop"])
async def test_a_listener_can_commit_when_the_consumer_leaves(broker: BrokerProcess, topic: str, way: str) -> None:
    """While partitions are revoked they are still the member's own, also by unsubscribe() and stop()."""
    await committing_at_the_end(topic, way, lambda group: new_member(broker, group, **BY_HAND))
