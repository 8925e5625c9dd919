"""Fills batches by hand."""

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer


async def main(bootstrap, prefix):
    topic = f"{prefix}-batches"
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, max_batch_size=500) as producer:
        batch = producer.create_batch()
        count = 0
        while True:
            metadata = batch.append(key=None, value=b"x" * 20, timestamp=1000 + count)
            if metadata is None:
                break
            assert metadata.offset == count
            assert metadata.timestamp == 1000 + count
            count += 1
        print(count > 10, batch.record_count() == count, batch.size() <= 500, batch.closed())
        print(batch.append(key=None, value=b"one more", timestamp=None))
        partitions = await producer.partitions_for(topic)
        future = await producer.send_batch(batch, topic, partition=min(partitions))
        print(await future)

        second = producer.create_batch()
        second.append(key=b"k", value=b"with a key", timestamp=None, headers=[("h", b"1")])
        second.close()
        print(second.append(key=b"k", value=b"late", timestamp=None))
        result = await (await producer.send_batch(second, topic, partition=0))
        print(result.offset == count, result.topic_partition)

    async with AIOKafkaProducer(bootstrap_servers=bootstrap, value_serializer=str.encode) as producer:
        batch = producer.create_batch()
        batch.append(key=None, value="text", timestamp=5)
        await (await producer.send_batch(batch, topic, partition=0))

    async with AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        records = [await consumer.getone() for _ in range(count + 2)]
        print([record.timestamp for record in records[:count]] == [1000 + number for number in range(count)])
        print([(record.key, record.value, record.headers) for record in records[count:]])


asyncio.run(main(*sys.argv[1:]))
