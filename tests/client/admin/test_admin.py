"""Admin against a real broker."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.client.producing import produce
from tests.kit.broker_process import BrokerProcess, MakeBroker, topic_name
from tests.kit.waiting import until_async
from tests.kit.zookeeper import ZooKeeper, ZooKeeperServer

from ottla.client.admin.admin import Admin
from ottla.client.admin.results import (
    ConfigAppend,
    ConfigResource,
    ConfigSubtract,
    NewTopic,
    OffsetSpec,
    TopicPartitionReplica,
)
from ottla.client.errors import (
    GroupIdNotFoundError,
    InvalidConfigurationError,
    KafkaConfigurationError,
    LogDirNotFoundError,
    NoBrokersAvailable,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from ottla.client.types import OffsetAndMetadata
from ottla.protocol.config_resources import ConfigResourceType
from ottla.protocol.identifiers import TopicPartition


@pytest.fixture
async def admin(broker: BrokerProcess) -> AsyncIterator[Admin]:
    """An admin client of the broker."""
    async with Admin(bootstrap_servers=broker.bootstrap, default_api_timeout_ms=20_000) as started:
        yield started


async def test_a_topic_is_created_listed_described_and_deleted(admin: Admin, topic: str) -> None:
    """The life of a topic."""
    (created,) = await admin.create_topics([NewTopic(topic, 3, 1, configs={"retention.ms": "1000"})])
    assert (created.name, created.num_partitions, created.replication_factor) == (topic, 3, 1)
    (listed,) = [each for each in await admin.list_topics() if each.name == topic]
    assert (listed.topic_id, listed.num_partitions) == (created.topic_id, 3)
    (described,) = await admin.describe_topics([topic])
    assert [each.partition for each in described.partitions] == [0, 1, 2]
    assert all(each.leader == 1 and each.isr == (1,) for each in described.partitions)
    assert described.to_dict()["partitions"][0]["replicas"] == [1]

    await admin.create_partitions({topic: 5})
    (described,) = await admin.describe_topics([topic])
    assert len(described.partitions) == 5

    await admin.delete_topics([topic])
    (gone,) = await admin.describe_topics([topic], raise_errors=False)
    assert isinstance(gone.error, UnknownTopicOrPartitionError)


async def test_an_error_of_one_is_raised_or_told(admin: Admin, topic: str) -> None:
    """The others are done all the same."""
    other = topic_name()
    await admin.create_topics([NewTopic(topic)])
    with pytest.raises(TopicAlreadyExistsError):
        await admin.create_topics([NewTopic(topic)])
    results = await admin.create_topics([NewTopic(topic), NewTopic(other)], raise_errors=False)
    errors = {each.name: each.error for each in results}
    assert isinstance(errors[topic], TopicAlreadyExistsError)
    assert errors[other] is None
    told = next(each for each in results if each.error).to_dict()
    assert told["error"]["name"] == "TOPIC_ALREADY_EXISTS"
    with pytest.raises(UnknownTopicOrPartitionError):
        await admin.describe_topics(["not-there"])


async def test_validation_creates_nothing(admin: Admin, topic: str) -> None:
    """It tells what would be."""
    (result,) = await admin.create_topics([NewTopic(topic, replica_assignments={0: [1]})], validate_only=True)
    assert result.error is None
    assert topic not in {each.name for each in await admin.list_topics()}


async def test_offsets_are_looked_up_and_records_deleted(admin: Admin, topic: str) -> None:
    """First, last, by time; a partition that does not exist is told, not waited for."""
    partition = TopicPartition(topic, 0)
    await admin.create_topics([NewTopic(topic, 1)])
    await produce(admin, partition, [b"a", b"b", b"c"], timestamp=1_000)
    (last,) = await admin.list_offsets({partition: OffsetSpec.LATEST})
    assert (last.offset, last.error) == (3, None)
    (found,) = await admin.list_offsets({partition: 1_001})
    assert (found.offset, found.timestamp) == (1, 1_001)

    (deleted,) = await admin.delete_records({partition: 2})
    assert deleted.low_watermark == 2
    (first,) = await admin.list_offsets({partition: OffsetSpec.EARLIEST})
    assert first.offset == 2

    missing = TopicPartition(topic, 7)
    results = await admin.list_offsets({partition: -1, missing: -1}, raise_errors=False)
    assert [each.offset for each in results] == [3, -1]
    assert isinstance(results[1].error, UnknownTopicOrPartitionError)


async def test_records_tell_their_times(admin: Admin, topic: str) -> None:
    """That of the first record of the batch at an offset; partitions without such a record are left out."""
    first, second, missing = (TopicPartition(topic, number) for number in (0, 1, 7))
    await admin.create_topics([NewTopic(topic, 2, configs={"message.timestamp.type": "CreateTime"})])
    await produce(admin, first, [b"a", b"b"], timestamp=1_000)
    await produce(admin, first, [b"c"], timestamp=5_000)
    assert await admin.record_times({first: 1, second: 0, missing: 0}) == {first: 1_000}
    assert await admin.record_times({first: 2}) == {first: 5_000}
    assert await admin.record_times({first: 3}) == {}
    await admin.delete_records({first: 2})
    assert await admin.record_times({first: 0}) == {}


async def test_options_are_changed_one_by_one(admin: Admin, topic: str) -> None:
    """Set, append, subtract, and back to the default; a broker's options come from that broker."""
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)

    async def values() -> dict[str, tuple[str | None, bool]]:
        (described,) = await admin.describe_configs([resource])
        return {each.name: (each.value, each.is_default) for each in described.entries}

    await admin.create_topics([NewTopic(topic)])
    await admin.alter_configs({resource: {"retention.ms": "5000", "cleanup.policy": ConfigAppend("compact")}})
    assert (await values())["retention.ms"] == ("5000", False)
    assert (await values())["cleanup.policy"] == ("delete,compact", False)
    await admin.alter_configs({resource: {"retention.ms": None, "cleanup.policy": ConfigSubtract("delete")}})
    assert (await values())["retention.ms"][1]
    assert (await values())["cleanup.policy"][0] == "compact"
    with pytest.raises(InvalidConfigurationError):
        await admin.alter_configs({resource: {"retention.ms": "soon"}})

    (own,) = await admin.describe_configs([ConfigResource(ConfigResourceType.BROKER, "1")], names=["broker.id"])
    assert [(each.name, each.value, each.is_read_only) for each in own.entries] == [("broker.id", "1", True)]


async def test_the_cluster_tells_of_itself(admin: Admin, broker: BrokerProcess, topic: str) -> None:
    """Brokers, controller, APIs, and what is on the disks."""
    await admin.create_topics([NewTopic(topic)])
    described = await admin.describe_cluster()
    assert [(each.broker_id, each.host, each.port) for each in described.brokers] == [(1, "127.0.0.1", broker.port)]
    assert described.controller_id == 1
    apis = {each.name: each for each in await admin.api_versions(1)}
    assert apis["Metadata"].version_max >= 12
    (log_dir,) = await admin.describe_log_dirs([TopicPartition(topic, 0)])
    assert (log_dir.broker_id, log_dir.path) == (1, str(broker.log_dir))
    assert [(each.topic, each.partition) for each in log_dir.replicas] == [(topic, 0)]


async def test_replicas_are_moved_between_log_directories(admin: Admin, broker: BrokerProcess, topic: str) -> None:
    """Each replica is answered by its broker; where it is already, there is nothing to do."""
    await admin.create_topics([NewTopic(topic, 2)])
    here, unknown = TopicPartitionReplica(topic, 0, 1), TopicPartitionReplica(topic, 1, 1)
    moves = {here: str(broker.log_dir), unknown: "/nowhere", TopicPartitionReplica(topic, 0, 9): "/data"}
    outcomes = await admin.alter_replica_log_dirs(moves, raise_errors=False)

    assert [(each.topic, each.partition, each.broker_id) for each in outcomes] == [*moves]
    assert outcomes[0].error is None
    assert isinstance(outcomes[1].error, LogDirNotFoundError)
    assert outcomes[2].error is not None
    with pytest.raises(LogDirNotFoundError):
        await admin.alter_replica_log_dirs({unknown: "/nowhere"})


async def test_offsets_of_a_group_are_set_read_and_deleted(admin: Admin, topic: str) -> None:
    """A group without members is made by its first offset, and ends when it is deleted."""
    group = f"group-{topic}"
    partition = TopicPartition(topic, 0)
    await admin.create_topics([NewTopic(topic, 2)])
    with pytest.raises(GroupIdNotFoundError):
        await admin.describe_groups([group])
    await admin.alter_group_offsets(group, {partition: 5, TopicPartition(topic, 1): OffsetAndMetadata(7, "note")})
    offsets = await admin.list_group_offsets(group)
    assert [(each.partition, each.offset, each.metadata) for each in offsets] == [(0, 5, ""), (1, 7, "note")]
    (one,) = await admin.list_group_offsets(group, [partition])
    assert one.offset == 5
    (listed,) = [each for each in await admin.list_groups() if each.group_id == group]
    assert (listed.state, listed.coordinator) == ("Empty", 1)
    (described,) = await admin.describe_groups([group])
    assert (described.state, described.members, described.type) == ("Empty", (), "classic")

    await admin.delete_group_offsets(group, [partition])
    assert [each.partition for each in await admin.list_group_offsets(group)] == [1]
    await admin.delete_groups([group])
    assert group not in {each.group_id for each in await admin.list_groups()}


async def test_partitions_move_and_leaders_are_elected(
    make_broker: MakeBroker, zookeeper_server: ZooKeeperServer, topic: str
) -> None:
    """From one broker to another; the move is over when it is listed no more, and then the leader is right."""
    connect = ZooKeeper(zookeeper_server).connect
    first = make_broker(zookeeper=connect, broker_id=1)
    make_broker(zookeeper=connect, broker_id=2)
    partition = TopicPartition(topic, 0)
    async with Admin(bootstrap_servers=first.bootstrap, default_api_timeout_ms=20_000) as admin:

        async def is_settled() -> bool:
            return not await admin.list_partition_reassignments()

        async def is_led_by_the_second() -> bool:
            return (await admin.describe_topics([topic]))[0].partitions[0].leader == 2

        await admin.create_topics([NewTopic(topic, replica_assignments={0: [1]})])
        await admin.alter_partition_reassignments({partition: [2]})
        await until_async(is_settled, "no reassignment is under way")
        await until_async(is_led_by_the_second, "broker 2 leads the partition")
        (described,) = await admin.describe_topics([topic])
        assert described.partitions[0].replicas == (2,)
        # The leader is known to be another one than when the offsets were first asked for.
        (end,) = await admin.list_offsets({partition: OffsetSpec.LATEST})
        assert end.offset == 0
        assert all(each.error is None for each in await admin.elect_leaders([partition]))


async def test_settings_that_cannot_work_are_refused() -> None:
    """An option that does not exist, and a cluster that is not there."""
    with pytest.raises(KafkaConfigurationError, match="bootstrap_server; did you mean bootstrap_servers"):
        Admin(bootstrap_server="localhost:1")  # type: ignore[call-arg]
    with pytest.raises(NoBrokersAvailable):
        await Admin.from_config({"bootstrap.servers": "127.0.0.1:1"}).start()
