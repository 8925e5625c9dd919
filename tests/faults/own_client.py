"""Our own producer and consumers at work while a test does harm to the cluster, and what must be true afterwards."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from tests.faults.access import Access
from tests.faults.cluster import Cluster
from tests.faults.steps import replicas_led_by
from tests.kit.waiting import until_async

from ottla.client.consumer.consumer import Consumer
from ottla.client.consumer.settings import GroupProtocol
from ottla.client.errors import KafkaError
from ottla.client.producer.producer import Producer
from ottla.client.producer.producer_batch import Delivery
from ottla.client.types import TopicPartition

MEMBERS = 2
# Records come at a steady pace, so that whatever happens happens amid them.
PACE_S = 0.005
SESSION_TIMEOUT_MS = 6_000


class Workload:
    """A producer that numbers its records in each partition, and a group that reads them."""

    def __init__(
        self, bootstrap: str, access: Access, topic: str, partitions: int, group_protocol: GroupProtocol
    ) -> None:
        # What all clients are made with.
        self._cluster = {"bootstrap_servers": bootstrap, **access.keywords}
        self.group = f"group-{uuid.uuid4().hex}"
        self.partitions = [TopicPartition(topic, number) for number in range(partitions)]
        self._group_protocol = group_protocol
        self._deliveries: dict[TopicPartition, list[Delivery]] = {partition: [] for partition in self.partitions}
        self.acknowledged = 0
        # By partition, what the members read, in the order in which they did.
        self.read: dict[TopicPartition, list[bytes | None]] = {partition: [] for partition in self.partitions}
        self.members: list[Consumer] = []
        self._is_writing = True

    async def write(self) -> None:
        """Send records until `finish`, and wait for the acknowledgements in their order."""
        async with Producer(**self._cluster) as producer, asyncio.TaskGroup() as tasks:
            acknowledgements: asyncio.Queue[Delivery | None] = asyncio.Queue()
            tasks.create_task(self._count(acknowledgements))
            number = 0
            while self._is_writing:
                for partition in self.partitions:
                    sent = await producer.send(partition.topic, b"%d" % number, partition=partition.partition)
                    self._deliveries[partition].append(sent)
                    acknowledgements.put_nowait(sent)
                number += 1
                await asyncio.sleep(PACE_S)
            acknowledgements.put_nowait(None)

    async def _count(self, acknowledgements: asyncio.Queue[Delivery | None]) -> None:
        while (delivery := await acknowledgements.get()) is not None:
            await delivery
            self.acknowledged += 1

    async def follow(self, member: Consumer) -> None:
        """Read what comes to a member, until it is stopped."""
        while self._is_writing or not self.is_all_read():
            for partition, records in (await member.getmany(timeout_ms=100)).items():
                self.read[partition] += [record.value for record in records]

    def is_shared(self) -> bool:
        """Whether every partition has one owner, and every member a partition."""
        owned = [partition for member in self.members for partition in member.assignment()]
        return sorted(owned) == self.partitions and all(member.assignment() for member in self.members)

    def is_all_read(self) -> bool:
        """Whether the members have read as many different records as were sent."""
        return all(len(set(self.read[one])) == len(self._deliveries[one]) for one in self.partitions)

    async def is_committed(self) -> bool:
        """Let all members commit what they have read; return whether they could."""
        try:
            for member in self.members:
                await member.commit()
        except KafkaError:
            return False
        return True

    async def go_on(self, records: int = 60) -> None:
        """Wait until so many more records were acknowledged, and so many read in each partition."""
        target = self.acknowledged + records
        lengths = {partition: len(read) + records // 10 for partition, read in self.read.items()}
        await until_async(lambda: self.acknowledged >= target)
        await until_async(lambda: all(len(self.read[partition]) >= length for partition, length in lengths.items()))

    def finish(self) -> None:
        """Send no more."""
        self._is_writing = False

    async def check(self) -> None:
        """Nothing lost, nothing twice, all in order; and the group has read it all and says so."""
        async with Consumer(**self._cluster, group_id=self.group, enable_auto_commit=False) as consumer:
            consumer.assign(self.partitions)
            for partition, deliveries in self._deliveries.items():
                expected = [b"%d" % number for number in range(len(deliveries))]
                consumer.seek(partition, 0)
                stored: list[bytes | None] = []
                end = (await consumer.end_offsets([partition]))[partition]
                while len(stored) < end:
                    found = await consumer.getmany(partition, timeout_ms=1000)
                    stored += [record.value for record in found.get(partition, [])]
                assert stored == expected
                assert [(await sent).offset for sent in deliveries] == list(range(len(expected)))
                # After a rebalance records may come again, but none is skipped.
                assert list(dict.fromkeys(self.read[partition])) == expected
                assert await consumer.committed(partition) == len(expected)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Write and read while the block runs; at its end all that was sent is read, and the members leave."""
        async with AsyncExitStack() as stack:
            for _ in range(MEMBERS):
                member = Consumer(
                    self.partitions[0].topic,
                    **self._cluster,
                    group_id=self.group,
                    group_protocol=self._group_protocol,
                    auto_offset_reset="earliest",
                    heartbeat_interval_ms=300,
                    session_timeout_ms=SESSION_TIMEOUT_MS,
                    auto_commit_interval_ms=200,
                )
                self.members.append(await stack.enter_async_context(member))
            async with asyncio.TaskGroup() as tasks:
                for member in self.members:
                    tasks.create_task(self.follow(member))
                tasks.create_task(self.write())
                await until_async(self.is_shared)
                await self.go_on()
                yield
                self.finish()
            # What a member commits when it leaves is lost if the group is being rebalanced, or its coordinator is down.
            await until_async(self.is_committed, "the group has committed all that it has read")


async def run_scenario(
    cluster: Cluster,
    topic: str,
    leaders: Sequence[int],
    faults: Callable[[Workload], AsyncIterator[None]],
    group_protocol: GroupProtocol = "classic",
) -> None:
    """Do what `faults` does while our client works, go on after each of its steps, and check the outcome."""
    await asyncio.to_thread(cluster.create_topic, topic, replicas_led_by(*leaders))
    workload = Workload(cluster.bootstrap, cluster.access, topic, len(leaders), group_protocol)
    async with workload.running():
        async for _ in faults(workload):
            await workload.go_on()
    await workload.check()
