"""A worker that commits by hand, in all forms, and goes on where it was."""

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import IllegalOperation, IllegalStateError
from aiokafka.structs import OffsetAndMetadata, TopicPartition


def worker(bootstrap, topic, group, **options):
    return AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        **options,
    )


async def attempt(name, work):
    try:
        await work
        print(name, "works")
    except (IllegalOperation, IllegalStateError, ValueError, TypeError) as error:
        print(name, type(error).__name__)


async def main(bootstrap, prefix):
    topic, group = f"{prefix}-jobs", f"{prefix}-workers"
    zero = TopicPartition(topic, 0)
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all") as producer:
        for number in range(10):
            await producer.send_and_wait(topic, b"%d" % number, partition=0)

    async with worker(bootstrap, topic, group) as consumer:
        print(await consumer.committed(zero), await consumer.position(zero))
        record = await consumer.getone()
        await consumer.commit({zero: record.offset + 1})
        print(await consumer.committed(zero))
        record = await consumer.getone()
        await consumer.commit({zero: (record.offset + 1, "half way")})
        print(await consumer.committed(zero))
        await consumer.getone()
        await consumer.commit({zero: OffsetAndMetadata(3, "")})
        print(await consumer.committed(zero))
        await consumer.getone()
        await consumer.commit()
        print(await consumer.committed(zero), await consumer.position(zero))
        await consumer.getone()
        print(await consumer.seek_to_committed(zero), await consumer.position(zero))
        await attempt("another partition", consumer.commit({TopicPartition("other", 0): 1}))
        await attempt("a tuple as partition", consumer.commit({(topic, 0): 1}))
        await attempt("no offsets", consumer.commit({}))
        await attempt("text", consumer.commit({zero: "1"}))
        await attempt("metadata", consumer.commit({zero: (1, 2)}))

    async with worker(bootstrap, topic, group, group_instance_id="static-1") as consumer:
        print((await consumer.getone()).value)
    async with worker(bootstrap, topic, f"{group}-auto") as consumer:
        print((await consumer.getone()).value)
    automatic = AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=f"{group}-2", auto_offset_reset="earliest", max_poll_records=4
    )
    await automatic.start()
    print({partition: len(records) for partition, records in (await automatic.getmany(timeout_ms=5000)).items()})
    await automatic.stop()
    async with worker(bootstrap, topic, f"{group}-2") as consumer:
        print(await consumer.committed(zero), (await consumer.getone()).value)
    async with AIOKafkaConsumer(topic, bootstrap_servers=bootstrap) as alone:
        await attempt("commit without a group", alone.commit())
        await attempt("committed without a group", alone.committed(zero))


asyncio.run(main(*sys.argv[1:]))
