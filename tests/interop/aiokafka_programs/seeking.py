"""Moves about in partitions that it has assigned to itself, by offset and by time."""

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import IllegalStateError, NoOffsetForPartitionError, OffsetOutOfRangeError


async def attempt(name, call):
    try:
        result = call()
        if asyncio.iscoroutine(result):
            result = await result
        print(name, result)
    except (IllegalStateError, ValueError, TypeError, AssertionError) as error:
        print(name, type(error).__name__)


async def main(bootstrap, prefix):
    topic = f"{prefix}-history"
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        for number in range(10):
            await producer.send_and_wait(topic, b"%d" % number, partition=0, timestamp_ms=1000 * number)

    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    consumer.assign([zero, one])
    await consumer.start()
    print(sorted(consumer.assignment()), sorted(consumer.subscription()))
    print((await consumer.getone(zero)).value, await consumer.position(zero), await consumer.position(one))
    consumer.seek(zero, 5)
    print((await consumer.getone()).value)
    print(consumer.highwater(zero), consumer.last_stable_offset(zero), consumer.last_poll_timestamp(zero) > 0)
    print(await consumer.seek_to_beginning(zero), (await consumer.getone(zero)).value)
    print(await consumer.seek_to_end(), await consumer.position(zero))
    print(await consumer.seek_to_beginning())
    # aiokafka has them in the order of the broker's answers.
    print(sorted((await consumer.beginning_offsets([zero, one])).items()))
    print(sorted((await consumer.end_offsets([zero, one])).items()))
    print(sorted((await consumer.offsets_for_times({zero: 4500, one: 0})).items()))
    print(await consumer.offsets_for_times({zero: 99_000}))
    await attempt("a negative time", lambda: consumer.offsets_for_times({zero: -1}))
    await attempt("a negative offset", lambda: consumer.seek(zero, -1))
    await attempt("another partition", lambda: consumer.seek(TopicPartition(topic, 7), 1))
    await attempt("position of another", lambda: consumer.position(TopicPartition(topic, 7)))
    await attempt("highwater of another", lambda: consumer.highwater(TopicPartition(topic, 7)))
    await attempt("beginning of another", lambda: consumer.seek_to_beginning(TopicPartition(topic, 7)))
    await attempt("a tuple", lambda: consumer.seek_to_end((topic, 0)))
    await attempt("pause a tuple", lambda: consumer.pause((topic, 0)))

    consumer.pause(zero)
    print(consumer.paused(), await consumer.getmany(timeout_ms=200))
    consumer.resume(zero)
    print(consumer.paused(), (await consumer.getone()).value)
    print(topic in await consumer.topics(), consumer.partitions_for_topic(topic))
    print(consumer.partitions_for_topic("no-such-topic"))
    await attempt("subscribe after assign", lambda: consumer.subscribe([topic]))
    consumer.unsubscribe()
    print(set(consumer.assignment()), set(consumer.subscription()))
    consumer.assign([one])
    print(consumer.assignment() == {one}, await consumer.position(one), await consumer.getmany(timeout_ms=200))
    await consumer.stop()

    async with AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="none") as strict:
        try:
            await strict.getone(zero)
        except NoOffsetForPartitionError as error:
            print("no offset:", type(error.args[0]).__name__)
        strict.seek(zero, 100)
        strict.seek(one, 0)
        try:
            await asyncio.wait_for(strict.getone(), 30)
        except OffsetOutOfRangeError as error:
            print("out of range:", error.args[0])
            strict.seek(zero, 9)
        print((await strict.getone(zero)).value)


asyncio.run(main(*sys.argv[1:]))
