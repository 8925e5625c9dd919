"""Changes its mind about what to read, and brings an assignor along."""

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata


class FirstTakesAll(AbstractPartitionAssignor):
    name = "first-takes-all"
    assigned = []

    @classmethod
    def assign(cls, cluster, members):
        first = min(members)
        rows = [(topic, sorted(cluster.partitions_for_topic(topic))) for topic in sorted(members[first].subscription)]
        return {member: ConsumerProtocolMemberAssignment(0, rows if member == first else [], b"") for member in members}

    @classmethod
    def metadata(cls, topics):
        return ConsumerProtocolMemberMetadata(0, list(topics), b"")

    @classmethod
    def on_assignment(cls, assignment):
        cls.assigned.append(assignment.partitions())


async def value(consumer):
    return (await asyncio.wait_for(consumer.getone(), 60)).value


async def main(bootstrap, prefix):
    left, right = f"{prefix}-left", f"{prefix}-right"
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        await producer.send_and_wait(left, b"left", partition=0)
        await producer.send_and_wait(right, b"right", partition=0)
    common = {"bootstrap_servers": bootstrap, "auto_offset_reset": "earliest"}

    consumer = AIOKafkaConsumer(**common, group_id=f"{prefix}-g", heartbeat_interval_ms=200, metadata_max_age_ms=500)
    await consumer.start()
    print(consumer.assignment(), consumer.subscription())
    consumer.subscribe([left])
    print(await value(consumer), set(consumer.subscription()) == {left})
    consumer.subscribe([right])
    print(await value(consumer), set(consumer.subscription()) == {right})
    consumer.unsubscribe()
    print(consumer.assignment(), consumer.subscription())
    consumer.assign([TopicPartition(left, 0)])
    await consumer.seek_to_beginning()
    print(await value(consumer))
    consumer.unsubscribe()
    consumer.subscribe(pattern=f"{prefix}-ri.*")
    print(set(await consumer.topics()) >= {left, right})
    await consumer.stop()

    alone = AIOKafkaConsumer(left, **common)
    await alone.start()
    print(await value(alone), set(alone.subscription()) == {left})
    alone.subscribe([right])
    print(await value(alone), sorted(alone.assignment()) == [TopicPartition(right, 0)])
    await alone.stop()

    for assignors in ((FirstTakesAll,), (RangePartitionAssignor,), (StickyPartitionAssignor, RangePartitionAssignor)):
        group = f"{prefix}-{assignors[0].name}"
        async with AIOKafkaConsumer(
            left, right, **common, group_id=group, partition_assignment_strategy=assignors
        ) as chosen:
            print(sorted({await value(chosen), await value(chosen)}), len(chosen.assignment()))
    print([sorted(partitions) for partitions in FirstTakesAll.assigned])


asyncio.run(main(*sys.argv[1:]))
