"""Reads, transforms and writes exactly once; aborts; and is fenced."""

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import IllegalOperation, KafkaError, ProducerFenced


async def committed_values(bootstrap, topic, count, isolation_level="read_committed"):
    values = []
    async with AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", isolation_level=isolation_level
    ) as consumer:
        while len(values) < count:
            values += [
                record.value for records in (await consumer.getmany(timeout_ms=500)).values() for record in records
            ]
    return values


async def main(bootstrap, prefix):
    source, target, group = f"{prefix}-in", f"{prefix}-out", f"{prefix}-copies"
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        for number in range(6):
            await producer.send_and_wait(source, b"%d" % number, partition=0)
        for name, call in (("begin", producer.begin_transaction), ("commit", producer.commit_transaction)):
            try:
                await call()
            except IllegalOperation as error:
                print(name, "without transactional_id:", error)

    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"{prefix}-id")
    await producer.start()
    try:
        await producer.send(target, b"outside")
    except IllegalOperation as error:
        print(error)

    async with producer.transaction():
        await producer.send(target, b"first", partition=0)
        await producer.send(target, b"second", partition=1)
    try:
        async with producer.transaction():
            await producer.send_and_wait(target, b"never", partition=0)
            raise ValueError("no")
    except ValueError as error:
        print("aborted:", error)
    await producer.begin_transaction()
    await producer.send_and_wait(target, b"aborted", partition=0)
    await producer.abort_transaction()

    consumer = AIOKafkaConsumer(
        source,
        bootstrap_servers=bootstrap,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    await consumer.start()
    copied = 0
    while copied < 6:
        batch = await consumer.getmany(timeout_ms=1000, max_records=2)
        offsets = {}
        async with producer.transaction():
            for partition, records in batch.items():
                for record in records:
                    await producer.send(target, b"copy of " + record.value, partition=0)
                    copied += 1
                offsets[partition] = records[-1].offset + 1
            if offsets:
                await producer.send_offsets_to_transaction(offsets, group)
    # The markers of the transaction may still be on their way.
    while (offset := await consumer.committed(TopicPartition(source, 0))) != 6:
        await consumer.getmany(timeout_ms=100)
    print(offset)
    for offsets, name in (({}, group), ({TopicPartition(source, 0): 1}, "")):
        async with producer.transaction():
            try:
                await producer.send_offsets_to_transaction(offsets, name)
            except ValueError:
                print("ValueError")
    await consumer.stop()

    print(sorted(await committed_values(bootstrap, target, 8)))
    print(sorted(await committed_values(bootstrap, target, 10, "read_uncommitted")))

    second = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"{prefix}-id")
    await second.start()
    try:
        async with producer.transaction():
            await producer.send_and_wait(target, b"late", partition=0)
    except ProducerFenced as error:
        print("fenced", isinstance(error, KafkaError))
    async with second.transaction():
        await second.send(target, b"last", partition=0)
    await second.stop()
    await producer.stop()
    print(sorted(await committed_values(bootstrap, target, 9)))


asyncio.run(main(*sys.argv[1:]))
