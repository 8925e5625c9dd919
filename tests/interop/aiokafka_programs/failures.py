"""Meets errors, and handles them as programs for aiokafka do."""

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerStoppedError, TopicPartition
from aiokafka.errors import KafkaConnectionError, KafkaError, ProducerClosed, UnknownTopicOrPartitionError
from aiokafka.helpers import create_ssl_context
from aiokafka.partitioner import DefaultPartitioner


def refused(name, call):
    try:
        call()
        print(name, "works")
    except (ValueError, TypeError) as error:
        print(name, type(error).__name__)


async def main(bootstrap, prefix):
    topic = f"{prefix}-failures"
    for client in (
        AIOKafkaProducer(bootstrap_servers="127.0.0.1:1"),
        AIOKafkaConsumer(topic, bootstrap_servers="127.0.0.1:1"),
    ):
        try:
            await client.start()
        except KafkaConnectionError as error:
            print("no broker:", isinstance(error, KafkaError), error.retriable)
        finally:
            await client.stop()

    refused("acks", lambda: AIOKafkaProducer(acks=5))
    refused("acks with idempotence", lambda: AIOKafkaProducer(acks=1, enable_idempotence=True))
    refused("codec", lambda: AIOKafkaProducer(compression_type="rar"))
    refused("protocol", lambda: AIOKafkaProducer(security_protocol="HTTP"))
    refused("ssl", lambda: AIOKafkaProducer(security_protocol="SSL"))
    refused("sasl", lambda: AIOKafkaConsumer(security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN"))
    refused("max_poll_records", lambda: AIOKafkaConsumer(max_poll_records=0))
    print(type(create_ssl_context()).__name__)

    partitioner = DefaultPartitioner()
    print([partitioner(b"key-%d" % number, [0, 1, 2, 3], [0, 1]) for number in range(8)])
    print(partitioner(None, [0, 1, 2], [1]))

    async with AIOKafkaProducer(
        bootstrap_servers=bootstrap, partitioner=lambda key, everything, available: max(everything)
    ) as producer:
        print((await producer.send_and_wait(topic, b"value", key=b"key")).partition)
    try:
        await producer.send(topic, b"late")
    except (ProducerClosed, KafkaError) as error:
        print("closed:", isinstance(error, KafkaError))

    consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap)
    refused("subscribe to nothing", consumer.subscribe)
    refused("subscribe to both", lambda: consumer.subscribe([topic], pattern="x"))
    refused("subscribe to text", lambda: consumer.subscribe(topic))
    refused("a listener of another class", lambda: consumer.subscribe([topic], listener=object()))
    refused("a pattern", lambda: consumer.subscribe(pattern="("))
    await consumer.start()
    waiting = asyncio.create_task(consumer.getone())
    await asyncio.sleep(0.1)
    await consumer.stop()
    try:
        await waiting
    except ConsumerStoppedError as error:
        print("stopped:", isinstance(error, KafkaError))
    try:
        await consumer.getmany()
    except ConsumerStoppedError:
        print("stopped")
    print(UnknownTopicOrPartitionError.errno, UnknownTopicOrPartitionError.retriable, UnknownTopicOrPartitionError("x"))
    print(TopicPartition(topic, 1) == (topic, 1))

    matching = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=f"{prefix}-by-pattern",
        auto_offset_reset="earliest",
        metadata_max_age_ms=500,
    )
    matching.subscribe(pattern=f"^{prefix}-fail.*")
    await matching.start()
    print((await matching.getone()).value, set(matching.subscription()))
    await matching.stop()


asyncio.run(main(*sys.argv[1:]))
