"""Consumers that share partitions, on a real broker: ours, and ours together with those of aiokafka."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from itertools import chain
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from tests.client.consumer.committing import BY_HAND, committing_at_the_end
from tests.client.consumer.consuming import (
    SESSION_TIMEOUT_MS,
    add_partitions,
    create_topic,
    group_name,
    member,
    partitions_of,
    produce,
    read,
)
from tests.kit.broker_process import BrokerProcess, MakeBroker
from tests.kit.waiting import until_async

from ottla.client.consumer.consumer import Consumer
from ottla.client.consumer.rebalance_listener import ConsumerRebalanceListener
from ottla.client.errors import CommitFailedError, IllegalStateError
from ottla.client.types import ConsumerGroupMetadata, TopicPartition

STRATEGIES = ["range", "roundrobin", "sticky", "cooperative-sticky"]


class Diary(ConsumerRebalanceListener):
    """Writes down what comes and goes."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, set[TopicPartition]]] = []

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self.entries.append(("revoked", revoked))

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self.entries.append(("assigned", assigned))

    def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        self.entries.append(("lost", lost))

    def words(self) -> set[str]:
        """Return which kinds of entries there are."""
        return {word for word, partitions in self.entries if partitions}


def shared(everything: set[TopicPartition], consumers: Sequence[Any]) -> bool:
    """Whether all partitions are assigned, each to one consumer, and no consumer has nothing."""
    shares = [set(map(tuple, consumer.assignment())) for consumer in consumers]
    return all(shares) and sorted(chain.from_iterable(shares)) == sorted(map(tuple, everything))


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_two_members_share_the_partitions(broker: BrokerProcess, topic: str, strategy: str) -> None:
    """A second member gets its part, every record comes to one of them, and the first has all again when it leaves."""
    await create_topic(broker.bootstrap, topic, 6)
    everything, group = partitions_of(topic, 6), group_name()
    options = {"partition_assignment_strategy": [strategy]}
    async with member(broker.bootstrap, group, topic, **options) as first:
        await until_async(lambda: first.assignment() == everything)
        async with member(broker.bootstrap, group, topic, **options) as second:
            await until_async(lambda: shared(everything, [first, second]))
            assert len(first.assignment()) == 3
            for number in range(6):
                await produce(broker.bootstrap, topic, [b"%d" % number], number)
            halves = await asyncio.gather(read(first, 3), read(second, 3))
            assert sorted(halves[0] + halves[1]) == [b"%d" % number for number in range(6)]
            # Says that it is done with what it got; else a rebalance would have it read again.
            await first.commit()
        await until_async(lambda: first.assignment() == everything)
        await produce(broker.bootstrap, topic, [b"after"])
        assert await read(first, 1) == [b"after"]


@pytest.mark.parametrize("ours_first", [True, False])
@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
async def test_members_of_aiokafka_take_part(
    broker: BrokerProcess, topic: str, strategy: str, ours_first: bool
) -> None:
    """Whoever leads, ours or aiokafka's, each of them has its part and nobody has what another has."""
    assignor = RangePartitionAssignor if strategy == "range" else RoundRobinPartitionAssignor
    await create_topic(broker.bootstrap, topic, 6)
    everything, group = partitions_of(topic, 6), group_name()
    ours = member(broker.bootstrap, group, topic, partition_assignment_strategy=[strategy])
    theirs = AIOKafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        group_id=group,
        partition_assignment_strategy=[assignor],
        heartbeat_interval_ms=100,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        auto_offset_reset="earliest",
    )
    async with AsyncExitStack() as stack:
        for consumer in (ours, theirs) if ours_first else (theirs, ours):
            await consumer.start()
            stack.push_async_callback(consumer.stop)
            await until_async(consumer.assignment)
        await until_async(lambda: shared(everything, [ours, theirs]))
        assert len(ours.assignment()) == 3
        for number in range(6):
            await produce(broker.bootstrap, topic, [b"%d" % number], number)
        mine = await read(ours, 3)
        yours = [(await theirs.getone()).value for _ in range(3)]
        assert sorted(mine + yours) == [b"%d" % number for number in range(6)]


async def test_a_member_that_dies_is_replaced(broker: BrokerProcess, topic: str) -> None:
    """When a member is gone without a word, the others have its partitions after its session timeout."""
    await create_topic(broker.bootstrap, topic, 4)
    everything, group = partitions_of(topic, 4), group_name()
    async with member(broker.bootstrap, group, topic) as survivor:
        victim = member(broker.bootstrap, group, topic)
        await victim.start()
        await until_async(lambda: shared(everything, [survivor, victim]))
        await crash(victim)
        await until_async(lambda: survivor.assignment() == everything)


async def crash(consumer: Consumer) -> None:
    """End a consumer as a dead process would: no commit, no word to the coordinator."""
    assert consumer._member is not None
    for task in consumer._member._tasks:
        task.cancel()
    await consumer._fetcher.close()
    if consumer._commits is not None:
        await consumer._commits.close()
    await consumer._cluster.close()


async def test_a_group_outlives_its_coordinator(make_broker: MakeBroker, topic: str) -> None:
    """Members go on with what was committed when the broker stops under them and comes back."""
    broker = make_broker()
    await create_topic(broker.bootstrap, topic, 2)
    everything, group = partitions_of(topic, 2), group_name()
    async with (
        member(broker.bootstrap, group, topic) as first,
        member(broker.bootstrap, group, topic) as second,
    ):
        await until_async(lambda: shared(everything, [first, second]))
        for number in range(2):
            await produce(broker.bootstrap, topic, [b"before %d" % number], number)
        await asyncio.gather(read(first, 1), read(second, 1))
        await asyncio.gather(first.commit(), second.commit())
        await asyncio.to_thread(broker.restart)
        for number in range(2):
            await produce(broker.bootstrap, topic, [b"after %d" % number], number)
        await until_async(lambda: shared(everything, [first, second]))
        values = await asyncio.gather(read(first, 1), read(second, 1))
        assert sorted(values[0] + values[1]) == [b"after 0", b"after 1"]
        await asyncio.gather(first.commit(), second.commit())


async def test_a_pattern_takes_in_topics_to_come(broker: BrokerProcess, topic: str) -> None:
    """Topics whose names match are subscribed to, also one that is created later."""
    await create_topic(broker.bootstrap, f"{topic}-a", 1)
    async with member(broker.bootstrap, group_name(), metadata_max_age_ms=200) as consumer:
        consumer.subscribe(pattern=f"^{topic}-.*")
        await until_async(lambda: consumer.subscription() == {f"{topic}-a"})
        await create_topic(broker.bootstrap, f"{topic}-b", 2)
        await until_async(
            lambda: consumer.assignment() == partitions_of(f"{topic}-a", 1) | partitions_of(f"{topic}-b", 2)
        )
        await produce(broker.bootstrap, f"{topic}-b", [b"found"], 1)
        assert await read(consumer, 1) == [b"found"]


async def test_new_partitions_are_shared_out(broker: BrokerProcess, topic: str) -> None:
    """When a topic gets more partitions, the group rebalances and has them too."""
    await create_topic(broker.bootstrap, topic, 1)
    async with member(broker.bootstrap, group_name(), topic, metadata_max_age_ms=200) as consumer:
        await until_async(lambda: consumer.assignment() == partitions_of(topic, 1))
        await add_partitions(broker.bootstrap, topic, 3)
        await until_async(lambda: consumer.assignment() == partitions_of(topic, 3))


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
async def test_listeners_hear_what_comes_and_goes(broker: BrokerProcess, topic: str, strategy: str) -> None:
    """An eager member gives up all when another comes; a cooperative one only what the other gets."""
    await create_topic(broker.bootstrap, topic, 4)
    everything, group, diary = partitions_of(topic, 4), group_name(), Diary()
    options = {"partition_assignment_strategy": [strategy]}
    async with member(broker.bootstrap, group, **options) as first:
        first.subscribe([topic], listener=diary)
        await until_async(lambda: first.assignment() == everything)
        async with member(broker.bootstrap, group, topic, **options) as second:
            await until_async(lambda: shared(everything, [first, second]))
            await until_async(lambda: len(diary.entries) > 2)
            assert diary.entries[:2] == [
                ("assigned", everything),
                ("revoked", everything if strategy == "range" else second.assignment()),
            ]
    assert diary.words() == {"assigned", "revoked"}
    assert diary.entries[-1][0] == "revoked"


async def test_a_slow_caller_loses_its_partitions_and_comes_back(broker: BrokerProcess, topic: str) -> None:
    """After max_poll_interval_ms without a call the member leaves; it joins again with the next call."""

    async def stale_commit(consumer: Consumer, topic: str) -> None:
        assert consumer._member is not None
        consumer._member.generation, consumer._member.member_id = 1, "somebody"
        try:
            await consumer.commit({TopicPartition(topic, 0): 1})
        finally:
            consumer._member.generation, consumer._member.member_id = -1, ""

    await create_topic(broker.bootstrap, topic, 1)
    await produce(broker.bootstrap, topic, [b"x"])
    everything, diary = partitions_of(topic, 1), Diary()
    async with member(broker.bootstrap, group_name(), max_poll_interval_ms=500) as consumer:
        consumer.subscribe([topic], listener=diary)
        await read(consumer, 1)
        await until_async(lambda: ("lost", everything) in diary.entries)
        assert consumer.assignment() == set()
        with pytest.raises(CommitFailedError):
            await stale_commit(consumer, topic)
        await produce(broker.bootstrap, topic, [b"y"])
        assert b"y" in {(await consumer.getone()).value, (await consumer.getone()).value}


async def test_a_static_member_keeps_its_partitions_over_a_restart(broker: BrokerProcess, topic: str) -> None:
    """A consumer that comes back under the same instance id in time has what it had; the other sees no rebalance."""
    await create_topic(broker.bootstrap, topic, 2)
    everything, group, diary = partitions_of(topic, 2), group_name(), Diary()
    async with member(broker.bootstrap, group, group_instance_id="one") as steady:
        steady.subscribe([topic], listener=diary)
        returning = member(broker.bootstrap, group, topic, group_instance_id="two")
        await returning.start()
        await until_async(lambda: shared(everything, [steady, returning]))
        had, heard = returning.assignment(), len(diary.entries)
        await returning.stop()
        async with member(broker.bootstrap, group, topic, group_instance_id="two") as again:
            await until_async(lambda: again.assignment() == had)
            assert len(diary.entries) == heard


class Clumsy(Diary):
    """Fails when it is told."""

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        raise ZeroDivisionError


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_what_a_listener_raises_reaches_the_caller(broker: BrokerProcess, topic: str, protocol: str) -> None:
    """The caller does not wait for records that never come, and can stop the consumer."""
    await create_topic(broker.bootstrap, topic)
    async with member(broker.bootstrap, group_name(), group_protocol=protocol) as consumer:
        consumer.subscribe([topic], listener=Clumsy())
        with pytest.raises(ZeroDivisionError):
            await consumer.getone()


@pytest.mark.parametrize("way", ["unsubscribe", "stop"])
async def test_a_listener_can_commit_when_the_consumer_leaves(broker: BrokerProcess, topic: str, way: str) -> None:
    """While partitions are revoked they are still the member's own, also by unsubscribe() and stop()."""
    await committing_at_the_end(topic, way, lambda group: member(broker.bootstrap, group, **BY_HAND))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_the_membership_for_a_transaction_is_that_of_the_last_records(
    broker: BrokerProcess, topic: str, protocol: str
) -> None:
    """A rebalance in the background does not change it, but the next records do."""
    await create_topic(broker.bootstrap, topic, 2)
    for number in range(2):
        await produce(broker.bootstrap, topic, [b"x"] * 10, number)
    group = group_name()
    options: dict[str, Any] = {"group_protocol": protocol, "group_instance_id": "one"}
    async with member(broker.bootstrap, group, topic, **options) as consumer:
        await read(consumer, 1)
        read_as = consumer.group_metadata()
        assert (read_as.group_id, read_as.group_instance_id) == (group, "one")
        assert read_as.generation_id > 0
        assert read_as.member_id
        async with member(broker.bootstrap, group, topic, group_protocol=protocol) as other:
            await until_async(lambda: shared(partitions_of(topic, 2), [consumer, other]))
            assert consumer.group_metadata() == read_as
            (partition,) = consumer.assignment()
            await consumer.seek_to_beginning(partition)
            await read(consumer, 1)
            now = consumer.group_metadata()
            assert now.generation_id > read_as.generation_id
            assert now == read_as._replace(generation_id=now.generation_id)


async def test_the_membership_without_a_member(broker: BrokerProcess, topic: str) -> None:
    """There is none with partitions of the caller's choice; before the group is joined it is an error to ask."""
    await create_topic(broker.bootstrap, topic)
    async with Consumer(bootstrap_servers=broker.bootstrap) as alone:
        with pytest.raises(IllegalStateError, match="needs group_id"):
            alone.group_metadata()
    async with member(broker.bootstrap, "group") as consumer:
        consumer.assign(partitions_of(topic, 1))
        assert consumer.group_metadata() == ConsumerGroupMetadata("group")
    async with member(broker.bootstrap, group_name(), topic) as consumer:
        with pytest.raises(IllegalStateError, match="has not joined its group yet"):
            consumer.group_metadata()


async def test_a_consumer_goes_back_to_what_is_committed(broker: BrokerProcess, topic: str) -> None:
    """Partitions without a committed offset go back to where they would begin."""
    await create_topic(broker.bootstrap, topic, 2)
    first, second = sorted(partitions_of(topic, 2))
    for partition in range(2):
        await produce(broker.bootstrap, topic, [b"%d" % number for number in range(5)], partition)
    async with member(broker.bootstrap, group_name(), topic, enable_auto_commit=False) as consumer:
        await read(consumer, 10)
        await consumer.commit({first: 3})
        assert await consumer.seek_to_committed(first) == {first: 3}
        assert await read(consumer, 2) == [b"3", b"4"]
        assert await consumer.seek_to_committed() == {first: 3, second: 0}
        assert len(await read(consumer, 7)) == 7
    async with Consumer(bootstrap_servers=broker.bootstrap) as alone:
        with pytest.raises(IllegalStateError, match="needs group_id"):
            await alone.seek_to_committed()
