"""Two members of a group share a topic, and a listener writes down what happens."""

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition


class Listener(ConsumerRebalanceListener):
    def __init__(self, consumer):
        self.consumer = consumer
        self.events = []

    async def on_partitions_revoked(self, revoked):
        self.events.append(("revoked", sorted(revoked)))
        if revoked and self.consumer is not None:
            await self.consumer.commit()

    def on_partitions_assigned(self, assigned):
        self.events.append(("assigned", sorted(assigned)))


def member(bootstrap, group):
    return AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=200,
        session_timeout_ms=6000,
        metadata_max_age_ms=1000,
    )


async def read(consumer, count):
    values = []
    while len(values) < count:
        for records in (await consumer.getmany(timeout_ms=500)).values():
            values += [record.value for record in records]
    return values


async def main(bootstrap, prefix):
    topic, group = f"{prefix}-shared", f"{prefix}-group"
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        for number in range(40):
            await producer.send_and_wait(topic, b"%02d" % number, partition=number % 4)

    first = member(bootstrap, group)
    events = Listener(first)
    first.subscribe([topic], listener=events)
    await first.start()
    print("alone:", events.events)
    print(sorted(first.assignment()) == [TopicPartition(topic, number) for number in range(4)])
    print(sorted(await read(first, 40))[:3])

    second = member(bootstrap, group)
    others = Listener(second)
    second.subscribe(topics=[topic], listener=others)
    reading = asyncio.create_task(second.start())
    # The assignment counts before the listener is told.
    while len(first.assignment()) != 2 or events.events[-1][0] != "assigned" or not reading.done():
        await first.getmany(timeout_ms=100)
    print("shared:", len(first.assignment()), len(second.assignment()))
    print(sorted(first.assignment() | second.assignment()) == [TopicPartition(topic, number) for number in range(4)])
    print([(name, len(some)) for name, some in events.events])
    print([(name, len(some)) for name, some in others.events])
    print([await first.committed(partition) for partition in sorted(first.assignment())])

    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        for number in range(8):
            await producer.send_and_wait(topic, b"more", partition=number % 4)
    print(await read(first, 4), await read(second, 4))

    await second.stop()
    while len(first.assignment()) != 4 or events.events[-1][0] != "assigned":
        await first.getmany(timeout_ms=100)
    print("alone again:", len(others.events), len(events.events))
    await first.stop()
    print("stopped:", events.events[-1][0])


asyncio.run(main(*sys.argv[1:]))
