"""Sends records of many kinds, and reads them one by one and in lists."""

import asyncio
import json
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError
from aiokafka.structs import TopicPartition


def to_json(value):
    return None if value is None else json.dumps(value).encode()


def from_json(data):
    return None if data is None else json.loads(data)


async def main(bootstrap, prefix):
    topic = f"{prefix}-orders"
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, key_serializer=to_json, value_serializer=to_json, compression_type="gzip"
    )
    await producer.start()
    try:
        print(sorted(await producer.partitions_for(topic)))
        future = await producer.send(topic, {"id": 1}, key="a", partition=0, timestamp_ms=1000)
        print(type(future).__name__, isinstance(future, asyncio.Future))
        print(await future)
        metadata = await producer.send_and_wait(topic, {"id": 2}, key="a", headers=[("trace", b"x"), ("trace", b"y")])
        print(metadata.topic, metadata.partition, metadata.topic_partition, metadata.offset, metadata.timestamp_type)
        print(metadata.timestamp > 1_600_000_000_000)
        print((await producer.send_and_wait(topic, None, key="a")).offset)
        for number in range(3, 20):
            await producer.send(topic, {"id": number}, partition=0)
        await producer.flush()
        try:
            await producer.send(topic, "x" * 2_000_000)
        except MessageSizeTooLargeError as error:
            print("too large", isinstance(error, KafkaError), error.errno)
        try:
            await producer.send(topic, None)
        except (AssertionError, KafkaError) as error:
            print("neither key nor value:", type(error).__name__)
    finally:
        await producer.stop()

    async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks=0) as careless:
        print("without acks:", await careless.send_and_wait(topic, b'{"id": 20}', partition=0))
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, linger_ms=10) as careful:
        sent = [await careful.send(topic, b'{"id": %d}' % number, partition=0) for number in range(21, 50)]
        print([metadata.offset - 20 for metadata in await asyncio.gather(*sent)])

    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        key_deserializer=from_json,
        value_deserializer=from_json,
    )
    await consumer.start()
    try:
        print(sorted(consumer.assignment()), sorted(consumer.subscription()))
        first = await consumer.getone()
        print(first)
        second = await consumer.getone(TopicPartition(topic, 0))
        print(second.key, second.value, second.headers, second.checksum, second.offset)
        third = await consumer.getone()
        print(third.key, third.value, third.serialized_key_size, third.serialized_value_size)
        ids = []
        while len(ids) < 20:
            batches = await consumer.getmany(timeout_ms=1000, max_records=7)
            for partition, records in batches.items():
                print(partition, len(records) <= 7)
                ids += [record.value["id"] for record in records]
        print(ids[:17])
        async for record in consumer:
            ids.append(record.value["id"])
            if record.value["id"] == 49:
                break
        print(ids == list(range(3, 50)))
        print(await consumer.getmany(timeout_ms=50))
    finally:
        await consumer.stop()


asyncio.run(main(*sys.argv[1:]))
