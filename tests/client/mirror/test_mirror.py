"""A mirror between two clusters of ours, in one process with the test."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from tests.client.mirror.contents import fill, seen, stored, write
from tests.kit.broker_process import BrokerProcess

from ottla import Admin
from ottla.client.admin.results import ConfigResource, NewTopic
from ottla.client.admin.security_results import AclBinding, AclFilter
from ottla.client.mirror.errors import MirrorError
from ottla.client.mirror.metrics import page
from ottla.client.mirror.mirror import Mirror, MirrorOptions
from ottla.client.mirror.selection import Selection
from ottla.client.types import OffsetAndMetadata, TopicPartition
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.config_resources import ConfigResourceType


@asynccontextmanager
async def mirror(source: BrokerProcess, destination: BrokerProcess, topics: str) -> AsyncIterator[Mirror]:
    """Mirror topics whose names begin with a text, and the groups of the same names."""
    selection = Selection([re.compile(f"{topics}.*")], [re.compile(".*-left-out")], [re.compile(f"{topics}.*")])
    options = MirrorOptions(selection, interval_seconds=0.2)
    async with (
        Admin(bootstrap_servers=source.bootstrap) as there,
        Admin(bootstrap_servers=destination.bootstrap) as here,
        Mirror(there, here, options) as made,
    ):
        yield made


async def becomes(expected: object, state: Callable[[], Awaitable[object]]) -> None:
    """Wait until a state is as expected."""
    for _ in range(600):
        found = await state()
        if found == expected:
            return
        await asyncio.sleep(0.05)
    assert found == expected


async def test_everything_is_the_same_in_the_destination(
    broker: BrokerProcess, other_broker: BrokerProcess, topic: str
) -> None:
    """Every batch at its offset, byte for byte, with what was aborted; options, and the offsets of groups."""
    group = f"{topic}-group"
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    async with Admin(bootstrap_servers=broker.bootstrap) as there:
        await there.create_topics(
            [NewTopic(topic, 2, 1, configs={"retention.ms": "-1"}), NewTopic(f"{topic}-left-out", 1, 1)]
        )
        await fill(broker.bootstrap, topic)
        await there.alter_group_offsets(group, {TopicPartition(topic, 1): OffsetAndMetadata(7, "mine")})

        async with mirror(broker, other_broker, topic) as first:
            found = await first.once()

        assert found.sentence == "source and destination agree: 1 topic, 2 partitions, 1 group"
        for number in range(2):
            partition = TopicPartition(topic, number)
            assert await stored(other_broker.bootstrap, partition) == await stored(broker.bootstrap, partition)
            assert await seen(other_broker.bootstrap, partition) == await seen(broker.bootstrap, partition)
        async with Admin(bootstrap_servers=other_broker.bootstrap) as here:
            (offset,) = await here.list_group_offsets(group)
            assert (offset.topic, offset.partition, offset.offset, offset.metadata) == (topic, 1, 7, "mine")
            assert topic in {each.name for each in await here.list_topics()}
            assert f"{topic}-left-out" not in {each.name for each in await here.list_topics()}

            # What changes in the source, changes in the destination.
            async with mirror(broker, other_broker, topic) as second:
                running = asyncio.create_task(second.run())
                await there.alter_configs({resource: {"retention.ms": None, "max.message.bytes": "2000000"}})
                await there.create_partitions({topic: 3})
                await there.alter_group_offsets(group, {TopicPartition(topic, 1): 9})
                await write(broker.bootstrap, topic, 20, partition=1)

                async def state() -> tuple[object, ...]:
                    (config,) = await here.describe_configs([resource], names=["retention.ms", "max.message.bytes"])
                    options = {entry.name: entry.value for entry in config.entries if not entry.is_default}
                    (offset,) = await here.list_group_offsets(group)
                    (described,) = await here.describe_topics([topic])
                    return options, offset.offset, len(described.partitions), second.status().records_copied

                await becomes(({"max.message.bytes": "2000000"}, 9, 3, 20), state)
                assert f'ottla_mirror_lag_records{{topic="{topic}",partition="1"}} 0\n' in page(
                    second.copies.values(), second.now_ms()
                )
                running.cancel()


async def test_two_mirrors_do_no_harm_to_each_other(
    broker: BrokerProcess, other_broker: BrokerProcess, topic: str
) -> None:
    """Each batch is appended by one of them."""
    partition = TopicPartition(topic, 0)
    await write(broker.bootstrap, topic, 50)
    async with mirror(broker, other_broker, topic) as first, mirror(broker, other_broker, topic) as second:
        for _ in range(5):
            await write(broker.bootstrap, topic, 20)
        found = await asyncio.gather(first.once(), second.once())

    assert [each.differences for each in found] == [[], []]
    assert await stored(other_broker.bootstrap, partition) == await stored(broker.bootstrap, partition)


async def test_a_destination_that_somebody_else_has_written_to_is_not_touched(
    broker: BrokerProcess, other_broker: BrokerProcess, topic: str
) -> None:
    """The mirror says so, and goes on with the others."""
    await write(broker.bootstrap, topic, 5)
    await write(broker.bootstrap, f"{topic}-fine", 5)
    async with Admin(bootstrap_servers=other_broker.bootstrap) as here:
        await here.create_topics([NewTopic(topic, 1, 1)])
    await write(other_broker.bootstrap, topic, 2)
    mine = await stored(other_broker.bootstrap, TopicPartition(topic, 0))

    async with mirror(broker, other_broker, topic) as made:
        found = await made.once()

    assert found.topics == 2
    assert len(found.differences) == 1
    assert "somebody else has written" in found.differences[0]
    assert await stored(other_broker.bootstrap, TopicPartition(topic, 0)) == mine
    fine = TopicPartition(f"{topic}-fine", 0)
    assert await stored(other_broker.bootstrap, fine) == await stored(broker.bootstrap, fine)


async def test_a_group_that_works_in_the_destination_is_left_alone(
    broker: BrokerProcess, other_broker: BrokerProcess, topic: str
) -> None:
    """It has moved: its offsets there are ahead of those that it left behind."""
    group, partition = f"{topic}-group", TopicPartition(topic, 0)
    await write(broker.bootstrap, topic, 10)
    async with (
        Admin(bootstrap_servers=broker.bootstrap) as there,
        Admin(bootstrap_servers=other_broker.bootstrap) as here,
    ):
        await there.alter_group_offsets(group, {partition: 4})
        async with mirror(broker, other_broker, topic) as first:
            await first.once()
        await here.alter_group_offsets(group, {partition: 9})
        async with mirror(broker, other_broker, topic) as second:
            found = await second.once()

        (offset,) = await here.list_group_offsets(group)
    assert offset.offset == 9
    assert found.notes == [f"group {group} works in the destination already: its offsets are its own"]


async def test_acls_come_and_go_with_those_of_the_source(
    authorizing_broker: BrokerProcess, other_broker: BrokerProcess, topic: str
) -> None:
    """Those of the destination stay."""
    copied = AclBinding("User:copied", AclOperation.READ, ResourceType.TOPIC, topic)
    left_out = AclBinding("User:left-out", AclOperation.READ, ResourceType.TOPIC, "another")
    own = AclBinding("User:own", AclOperation.READ, ResourceType.TOPIC, topic)
    await write(authorizing_broker.bootstrap, topic, 1)
    async with (
        Admin(bootstrap_servers=authorizing_broker.bootstrap) as there,
        Admin(bootstrap_servers=other_broker.bootstrap) as here,
        mirror(authorizing_broker, other_broker, topic) as made,
    ):
        await there.create_acls([copied, left_out])
        await here.create_acls([own])

        async def acls() -> set[AclBinding]:
            return {copied, left_out, own} & {*await here.describe_acls()}

        running = asyncio.create_task(made.run())
        await becomes({copied, own}, acls)
        await there.delete_acls([AclFilter(principal="User:copied"), AclFilter(principal="User:left-out")])
        await becomes({own}, acls)
        running.cancel()


async def test_a_cluster_is_not_mirrored_to_itself(broker: BrokerProcess, topic: str) -> None:
    """Whatever the addresses are."""
    with pytest.raises(MirrorError, match="same cluster"):
        async with mirror(broker, broker, topic):
            pass
