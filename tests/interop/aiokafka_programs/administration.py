"""Creates, describes and deletes topics, and looks at groups."""

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import IllegalArgumentError, InvalidPartitionsError


async def main(bootstrap, prefix):
    name, group = f"{prefix}-made", f"{prefix}-readers"
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        created = await admin.create_topics([NewTopic(name, 2, 1, topic_configs={"retention.ms": "60000"})])
        print(created.topic_errors)
        print((await admin.create_topics([NewTopic(name, 2, 1)])).topic_errors[0][:2])
        print((await admin.create_topics([NewTopic(f"{prefix}-tried", 1, 1)], validate_only=True)).topic_errors)
        topics = await admin.list_topics()
        print(name in topics, f"{prefix}-tried" in topics)
        (described,) = await admin.describe_topics([name])
        print(sorted(described), described["topic"], described["error_code"], described["is_internal"])
        print(sorted((each["partition"], len(each["replicas"]), len(each["isr"])) for each in described["partitions"]))
        cluster = await admin.describe_cluster()
        print(sorted(cluster), len(cluster["brokers"]), sorted(cluster["brokers"][0]))

        print((await admin.create_partitions({name: NewPartitions(4)})).topic_errors)
        try:
            await admin.create_partitions({name: NewPartitions(3)})
        except InvalidPartitionsError as error:
            print("fewer partitions:", error.errno)
        try:
            NewTopic(name, 1, 1, replica_assignments={0: [1]})
        except IllegalArgumentError:
            print("both numbers and brokers")

        resource = ConfigResource(ConfigResourceType.TOPIC, name, {"retention.ms": None})
        (response,) = await admin.describe_configs([resource])
        (row,) = response.resources
        print(row[0], row[2:4], [entry[:2] for entry in row[4]])
        changed = await admin.alter_configs([ConfigResource("topic", name, {"retention.ms": "70000"})])
        print([each[0] for response in changed for each in response.resources])
        value = ""
        while value != "70000":
            # Brokers learn of it a moment later.
            (response,) = await admin.describe_configs([resource])
            value = response.to_object()["resources"][0]["config_entries"][0]["config_value"]
        print(value)

        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            for number in range(5):
                await producer.send_and_wait(name, b"%d" % number, partition=0)
        print(await admin.delete_records({TopicPartition(name, 0): RecordsToDelete(3)}))

        async with AIOKafkaConsumer(
            name, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", client_id="reader"
        ) as consumer:
            print((await consumer.getone()).offset)
            await consumer.commit()
            (response,) = await admin.describe_consumer_groups([group])
            error_code, group_id, state, protocol_type, protocol, members, *_ = response.groups[0]
            print(error_code, group_id, state, protocol_type, protocol, [member[1] for member in members])
        print((group, "consumer") in await admin.list_consumer_groups())
        offsets = await admin.list_consumer_group_offsets(group)
        print(offsets[TopicPartition(name, 0)])
        asked = await admin.list_consumer_group_offsets(group, partitions=[TopicPartition(f"{name}-x", 1)])
        print(asked)
        print(await admin.find_coordinator(group) in [broker["node_id"] for broker in cluster["brokers"]])

        print((await admin.delete_topics([name])).topic_error_codes)
        print((await admin.delete_topics([f"{prefix}-never"])).topic_error_codes)
    finally:
        await admin.close()


asyncio.run(main(*sys.argv[1:]))
