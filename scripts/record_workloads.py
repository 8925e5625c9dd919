"""What the Python clients do while they are recorded; `scripts.record_tools` has the other programs.

The point is to bring out every API and version that a client can speak, with success and with failure, so
each step stands alone: one that fails has been recorded all the same, and is reported and passed over.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any

from scripts.record_cluster import LOG_DIRS, Cluster

log = logging.getLogger("record_frames")

# The clients' type hints are missing or partial.
ck: Any = importlib.import_module("confluent_kafka")
ck_admin: Any = importlib.import_module("confluent_kafka.admin")
aiokafka: Any = importlib.import_module("aiokafka")
aio_admin: Any = importlib.import_module("aiokafka.admin")
aio_config: Any = importlib.import_module("aiokafka.admin.config_resource")
kafka: Any = importlib.import_module("kafka")
kp_admin: Any = importlib.import_module("kafka.admin")

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CREDENTIALS = (("PLAIN", "admin", "admin-secret"), ("SCRAM-SHA-256", "alice", "alice-secret"))
TOPIC_CONFIG = {"retention.ms": "100000000"}
# Releases whose API versions kafka-python is told to use; in the end it finds out by itself.
RELEASES: tuple[tuple[int, ...], ...] = (
    *((0, 8, 2), (0, 9), (0, 10, 0), (0, 10, 1), (0, 10, 2), (0, 11), (1, 0), (1, 1)),
    *((2, minor) for minor in range(9)),
    *((3, minor) for minor in range(10)),
)
NEWEST = (99,)
# Versions that were the newest of no release, by API key, and the releases that are taken to have them.
BETWEEN: dict[tuple[int, ...], dict[int, int]] = {
    (2, 0, 1): {0: 4, 1: 4, 3: 3, 8: 5, 9: 0},
    (2, 4, 1): {1: 9, 8: 0, 13: 3, 15: 4, 43: 1},
}


def attempt(call: Callable[..., object], *arguments: object, **options: object) -> None:
    """Take a step that need not succeed, and wait for it if it goes on in the background."""
    try:
        result = call(*arguments, **options)
        for future in result.values() if isinstance(result, dict) else [result]:
            if isinstance(future, Future):
                future.result(timeout=30)
    # Whatever a client raises, the frames are recorded, and the next step is worth taking.
    except Exception as error:
        log.debug("passed over: %s: %r", getattr(call, "__name__", call), error)


async def attempt_async(step: Awaitable[object]) -> None:
    """Await a step that need not succeed."""
    try:
        await asyncio.wait_for(step, timeout=30)
    # As in `attempt`.
    except Exception as error:
        log.debug("passed over: %s: %r", step, error)


def run_confluent_kafka(cluster: Cluster) -> None:
    """Drive librdkafka."""
    topic, group = "confluent", "confluent-group"
    common = {"bootstrap.servers": cluster.bootstrap}
    admin = ck_admin.AdminClient(common)
    new_topic = ck_admin.NewTopic(topic, 2, 2, config=TOPIC_CONFIG)
    attempt(admin.create_topics, [new_topic, ck_admin.NewTopic("bad name", 1, 1)])
    attempt(admin.create_topics, [new_topic])
    attempt(admin.create_partitions, [ck_admin.NewPartitions(topic, 3)])
    for acks in ("0", "1", "all"):
        for codec in CODECS:
            confluent_kafka_produce(common | {"acks": acks, "compression.type": codec}, topic)
    confluent_kafka_produce(common | {"enable.idempotence": True}, topic)
    fallback = {"api.version.request": False, "broker.version.fallback": "0.9.0"}
    attempt(confluent_kafka_produce, common | fallback, topic)

    consuming = common | {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consuming |= {"isolation.level": "read_committed", "heartbeat.interval.ms": 300}
    consumer = ck.Consumer(consuming)
    consumer.subscribe([topic])
    consumer.consume(10, timeout=15)
    partition = ck.TopicPartition(topic, 0, 1)
    attempt(consumer.commit, asynchronous=False)
    attempt(consumer.committed, [partition], timeout=10)
    attempt(consumer.get_watermark_offsets, partition, timeout=10)
    attempt(consumer.offsets_for_times, [partition], timeout=10)
    attempt(confluent_kafka_transact, common, topic, consumer)
    confluent_kafka_administrate(admin, topic, group)
    consumer.close()
    # The second consumer starts from committed offsets, so it checks their leader epochs.
    static = ck.Consumer(consuming | {"group.instance.id": "static-1"})
    static.subscribe([topic])
    static.consume(50, timeout=5)
    static.close()
    attempt(admin.delete_consumer_groups, [group, "no-such-group"])
    group += "-2"
    attempt(admin.alter_consumer_group_offsets, [ck.ConsumerGroupTopicPartitions(group, [partition])])
    attempt(admin.delete_consumer_groups, [group])
    for mechanism, user, password in CREDENTIALS:
        secure = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism}
        secure |= {"bootstrap.servers": cluster.secure_bootstrap, "sasl.username": user, "sasl.password": password}
        attempt(ck_admin.AdminClient(secure).list_topics, timeout=10)
    attempt(admin.delete_topics, [topic, "no-such-topic"])


def confluent_kafka_produce(config: dict[str, Any], topic: str) -> None:
    """Send a batch with headers, null keys and null values."""
    producer = ck.Producer(config | {"linger.ms": 50})
    for number in range(6):
        key, value = (None, b"v" * 20) if number % 2 else (f"key-{number}".encode(), None)
        producer.produce(topic, value, key, partition=number % 2, headers={"h": b"1", "n": None}, timestamp=10_000)
    producer.flush(15)


def confluent_kafka_transact(common: dict[str, Any], topic: str, consumer: Any) -> None:
    """Commit a transaction with offsets, and abort another."""
    producer = ck.Producer(common | {"transactional.id": "confluent-transaction"})
    producer.init_transactions(15)
    producer.begin_transaction()
    producer.produce(topic, b"committed", partition=0)
    offsets = [ck.TopicPartition(topic, 0, 2, metadata="note")]
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 15)
    producer.commit_transaction(15)
    producer.begin_transaction()
    producer.produce(topic, b"aborted", partition=1)
    producer.flush(15)
    producer.abort_transaction(15)


def confluent_kafka_administrate(admin: Any, topic: str, group: str) -> None:
    """Call what else the admin client offers."""
    resource = ck_admin.ConfigResource
    change = ck_admin.ConfigEntry("retention.ms", "1000000", incremental_operation=ck_admin.AlterConfigOpType.SET)
    pattern = (ck_admin.ResourceType.TOPIC, topic, ck_admin.ResourcePatternType.LITERAL)
    acl = (*pattern, "User:alice", "*", ck_admin.AclOperation.READ, ck_admin.AclPermissionType.ALLOW)
    acl_filter = ck_admin.AclBindingFilter(*acl)
    scram = ck_admin.ScramCredentialInfo(ck_admin.ScramMechanism.SCRAM_SHA_256, 4096)
    partition = ck.TopicPartition(topic, 0, 1)
    attempt(admin.list_topics, timeout=10)
    attempt(admin.describe_topics, ck.TopicCollection([topic]), include_authorized_operations=True)
    attempt(admin.describe_cluster, include_authorized_operations=True)
    attempt(admin.describe_configs, [resource("topic", topic)])
    attempt(admin.describe_configs, [resource("broker", "1")])
    attempt(admin.alter_configs, [resource("topic", topic, {"retention.ms": "1000000"})])
    attempt(admin.incremental_alter_configs, [resource("topic", topic, incremental_configs=[change])])
    attempt(admin.create_acls, [ck_admin.AclBinding(*acl)])
    attempt(admin.describe_acls, acl_filter)
    attempt(admin.delete_acls, [acl_filter])
    attempt(admin.list_consumer_groups)
    attempt(admin.describe_consumer_groups, [group], include_authorized_operations=True)
    attempt(admin.list_consumer_group_offsets, [ck.ConsumerGroupTopicPartitions(group)])
    credential = ck_admin.UserScramCredentialUpsertion("alice", scram, b"alice-secret")
    attempt(admin.alter_user_scram_credentials, [credential])
    attempt(admin.describe_user_scram_credentials, ["alice", "nobody"])
    attempt(admin.list_offsets, {partition: ck_admin.OffsetSpec.max_timestamp()})
    attempt(admin.delete_records, [partition])
    attempt(admin.elect_leaders, ck.ElectionType.PREFERRED, [partition])
    attempt(admin.elect_leaders, ck.ElectionType.UNCLEAN)


def run_aiokafka(cluster: Cluster) -> None:
    """Drive aiokafka on an event loop of its own."""
    asyncio.run(aiokafka_workload(cluster))


async def aiokafka_workload(cluster: Cluster) -> None:
    """Do all that aiokafka can."""
    topic, group, common = "aiokafka", "aiokafka-group", {"bootstrap_servers": cluster.bootstrap}
    partition = aiokafka.TopicPartition(topic, 0)
    admin = aio_admin.AIOKafkaAdminClient(**common)
    await admin.start()
    await attempt_async(admin.create_topics([aio_admin.NewTopic(topic, 2, 2, topic_configs=TOPIC_CONFIG)]))
    await attempt_async(admin.create_partitions({topic: aio_admin.NewPartitions(3)}))
    for codec in CODECS:
        for acks in (0, 1, "all"):
            options = {"acks": acks, "compression_type": None if codec == "none" else codec}
            async with aiokafka.AIOKafkaProducer(**common, **options) as producer:
                await producer.send_and_wait(topic, b"value" * 20, None, partition=0, headers=[("h", b"1")])
    consuming = common | {"group_id": group, "auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    static = aiokafka.AIOKafkaConsumer(topic, **consuming, group_instance_id="static-1")
    await attempt_async(static.start())
    await attempt_async(static.stop())
    consumer = aiokafka.AIOKafkaConsumer(topic, **consuming, heartbeat_interval_ms=300, enable_auto_commit=False)
    await consumer.start()
    await attempt_async(aiokafka_transact(common, partition))
    await attempt_async(consumer.getmany(timeout_ms=5000))
    await attempt_async(consumer.commit())
    await attempt_async(consumer.committed(partition))
    await attempt_async(consumer.offsets_for_times({partition: 1}))
    resource, kind = aio_config.ConfigResource, aio_config.ConfigResourceType
    named = resource(kind.TOPIC, topic, TOPIC_CONFIG)
    await attempt_async(admin.list_topics())
    await attempt_async(admin.describe_cluster())
    await attempt_async(admin.describe_configs([named, resource(kind.BROKER, "1")], include_synonyms=True))
    await attempt_async(admin.alter_configs([named]))
    await attempt_async(admin.list_consumer_groups())
    await attempt_async(admin.describe_consumer_groups([group]))
    await attempt_async(admin.list_consumer_group_offsets(group))
    await attempt_async(admin.delete_records({partition: aio_admin.RecordsToDelete(1)}))
    await attempt_async(consumer.stop())
    for mechanism, user, password in CREDENTIALS:
        secure = {"bootstrap_servers": cluster.secure_bootstrap, "security_protocol": "SASL_PLAINTEXT"}
        secure |= {"sasl_mechanism": mechanism, "sasl_plain_username": user, "sasl_plain_password": password}
        client = aio_admin.AIOKafkaAdminClient(**secure)
        await attempt_async(client.start())
        await attempt_async(client.close())
    await attempt_async(admin.delete_topics([topic]))
    await attempt_async(admin.close())


async def aiokafka_transact(common: dict[str, Any], partition: Any) -> None:
    """Commit a transaction with offsets, and abort another."""
    async with aiokafka.AIOKafkaProducer(**common, transactional_id="aiokafka-transaction") as producer:
        async with producer.transaction():
            await producer.send_and_wait(partition.topic, b"committed", partition=0)
            await producer.send_offsets_to_transaction({partition: 1}, "aiokafka-other-group")
        await producer.begin_transaction()
        await producer.send_and_wait(partition.topic, b"aborted", partition=0)
        await producer.abort_transaction()


def run_kafka_python(cluster: Cluster) -> None:
    """Drive kafka-python as if against every release of Kafka."""
    known: Any = importlib.import_module("kafka.protocol.broker_version_data").BROKER_API_VERSIONS
    for release, versions in BETWEEN.items():
        known[release] = known[release[:2]] | {api_key: (0, version) for api_key, version in versions.items()}
    for release in (*RELEASES, *BETWEEN, NEWEST):
        attempt(kafka_python_workload, cluster, release, "kafka-python-" + ".".join(map(str, release)))
    for mechanism, user, password in CREDENTIALS:
        secure = {"bootstrap_servers": cluster.secure_bootstrap, "security_protocol": "SASL_PLAINTEXT"}
        secure |= {"sasl_mechanism": mechanism, "sasl_plain_username": user, "sasl_plain_password": password}
        for release in ((0, 10, 2), (1, 0), (2, 3), (3, 9)):
            attempt(lambda **options: kafka.KafkaAdminClient(**options).close(), **secure, api_version=release)


def kafka_python_workload(cluster: Cluster, release: tuple[int, ...], topic: str) -> None:
    """Do all that kafka-python can do with one release."""
    log.info("recording %s", topic)
    common = {"bootstrap_servers": cluster.bootstrap, "api_version": None if release == NEWEST else release}
    group, partition = f"{topic}-group", kafka.TopicPartition(topic, 0)
    admin = kafka.KafkaAdminClient(**common)
    specification = {"num_partitions": 2, "replication_factor": 2, "configs": TOPIC_CONFIG}
    attempt(admin.create_topics, {topic: specification}, raise_errors=False)
    attempt(admin.create_partitions, {topic: 3})
    for acks in (0, 1, "all"):
        options = {"acks": acks, "compression_type": "gzip" if acks == 1 else None, "max_block_ms": 10_000}
        idempotent = acks == "all" and release >= (0, 11)
        producer = kafka.KafkaProducer(**common, **options, enable_idempotence=idempotent)
        for number in range(4):
            producer.send(topic, b"value" * 5, b"key" if number % 2 else None, partition=0)
        attempt(producer.flush, timeout=10)
        attempt(producer.close)
    consuming = common | {"group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    consumer = kafka.KafkaConsumer(topic, **consuming, heartbeat_interval_ms=300)
    attempt(consumer.poll, timeout_ms=8000)
    attempt(consumer.commit)
    attempt(consumer.committed, partition)
    attempt(consumer.offsets_for_times, {partition: 1})
    attempt(consumer.end_offsets, [partition])
    if release >= (0, 11):
        attempt(kafka_python_transact, common, topic, consumer)
        attempt(consumer.poll, timeout_ms=1000)
    kafka_python_administrate(admin, topic, group)
    consumer.close()
    # The second consumer starts from a committed offset, so it checks the leader epoch of that.
    static = kafka.KafkaConsumer(topic, **consuming, group_instance_id="static-1" if release >= (2, 3) else None)
    attempt(static.poll, timeout_ms=3000)
    attempt(admin.remove_group_members, group, [kp_admin.MemberToRemove(group_instance_id="static-1")])
    static.close()
    attempt(admin.reset_group_offsets, group, {partition: kp_admin.OffsetSpec.EARLIEST})
    attempt(admin.delete_group_offsets, group, [partition])
    attempt(admin.delete_groups, [group])
    attempt(admin.delete_topics, [topic])
    attempt(admin.close)


def kafka_python_transact(common: dict[str, Any], topic: str, consumer: Any) -> None:
    """Commit a transaction with offsets, and abort another."""
    producer = kafka.KafkaProducer(**common, transactional_id=f"{topic}-transaction", max_block_ms=15_000)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, b"committed", partition=0, headers=[("h", b"1")])
    offsets = {kafka.TopicPartition(topic, 0): kafka.OffsetAndMetadata(1, "note", -1)}
    producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
    producer.commit_transaction()
    producer.begin_transaction()
    producer.send(topic, b"aborted", partition=0)
    producer.flush(timeout=10)
    producer.abort_transaction()
    producer.close()


def kafka_python_administrate(admin: Any, topic: str, group: str) -> None:
    """Call what else the admin client offers."""
    partition, spec = kafka.TopicPartition(topic, 0), kp_admin.OffsetSpec
    pattern = kp_admin.ResourcePattern(kp_admin.ResourceType.TOPIC, topic)
    acl = ("User:alice", "*", kp_admin.ACLOperation.READ, kp_admin.ACLPermissionType.ALLOW, pattern)
    acl_filter = kp_admin.ACLFilter(*acl)
    topic_config = kp_admin.ConfigResource("TOPIC", topic, TOPIC_CONFIG)
    broker_config = kp_admin.ConfigResource("BROKER", "1", {"log.cleaner.threads": "1"})
    attempt(admin.list_topics)
    attempt(admin.describe_topics, [topic, "no-such-topic"])
    attempt(admin.describe_cluster)
    attempt(admin.describe_log_dirs, [topic])
    attempt(admin.alter_replica_log_dirs, {(topic, 0, 1): f"{LOG_DIRS}/1b"})
    attempt(admin.describe_features)
    attempt(admin.update_features, {"metadata.version": 1}, validate_only=True)
    attempt(admin.describe_configs, [topic_config, broker_config], include_synonyms=True, config_filter="all")
    attempt(admin.alter_configs, [topic_config])
    attempt(admin.alter_configs, [topic_config], incremental=False)
    attempt(admin.reset_configs, [broker_config])
    attempt(admin.create_acls, [kp_admin.ACL(*acl)])
    attempt(admin.describe_acls, acl_filter)
    attempt(admin.delete_acls, [acl_filter])
    attempt(admin.list_groups)
    attempt(admin.describe_groups, [group, "no-such-group"])
    attempt(admin.list_group_offsets, {group: [partition]})
    attempt(admin.alter_group_offsets, f"{group}-2", {partition: kafka.OffsetAndMetadata(1, "note", 0)})
    attempt(admin.list_partition_offsets, {partition: spec.MAX_TIMESTAMP})
    attempt(admin.list_partition_offsets, {partition: spec.LATEST})
    attempt(admin.delete_records, {partition: 1})
    attempt(admin.elect_leaders, 0, {topic: [0]})
    attempt(admin.alter_partition_reassignments, {partition: [2, 1], kafka.TopicPartition("no", 0): None})
    attempt(admin.list_partition_reassignments)
    attempt(admin.list_transactions)
    attempt(admin.describe_transactions, [f"{topic}-transaction"])
    attempt(admin.describe_producers, [partition])
    attempt(admin.abort_transaction, kp_admin.AbortTransactionSpec(partition, 1, 0))
    credential = ("alice", kp_admin.ScramMechanism.SCRAM_SHA_256, "alice-secret")
    attempt(admin.alter_user_scram_credentials, [kp_admin.UserScramCredentialUpsertion(*credential, iterations=4096)])
    attempt(admin.describe_user_scram_credentials, ["alice", "nobody"])
