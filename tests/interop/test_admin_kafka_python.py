"""kafka-python's KafkaAdminClient."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.interop.clients import python
from tests.interop.clients.confluent import Confluent
from tests.interop.clients.python import AlterConfigOp, ConfigResource, TopicPartition, errors
from tests.interop.clients.record import Sent
from tests.kit.broker_process import BrokerProcess

Admin = Any


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[Admin]:
    """An admin client of the shared broker."""
    with python.admin(broker.bootstrap) as client:
        yield client


def options(admin: Admin, resource_type: str, name: str, config_filter: str = "modified") -> Any:
    """Return the options of a topic or broker."""
    found = admin.describe_configs([ConfigResource(resource_type, name)], config_filter=config_filter)
    return found[resource_type][name]


def test_topics_are_created_listed_described_and_deleted(admin: Admin, topic: str) -> None:
    """All calls see the same topic, and no longer when it is deleted."""
    created = f"{topic}-created"
    admin.create_topics({created: {"num_partitions": 2, "replication_factor": 1}}, wait_for_metadata=True)
    with pytest.raises(errors.TopicAlreadyExistsError):
        admin.create_topics([created])

    assert {topic, created} <= set(admin.list_topics())
    (described,) = admin.describe_topics([created])
    assert [partition["leader_id"] for partition in described["partitions"]] == [1, 1]

    admin.delete_topics([created])
    assert created not in admin.list_topics()
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        admin.delete_topics([f"{topic}-unknown"])


def test_partitions_are_added(admin: Admin, topic: str) -> None:
    """As many as the topic is to have in all."""
    admin.create_partitions({topic: 3})

    (described,) = admin.describe_topics([topic])
    assert sorted(partition["partition_index"] for partition in described["partitions"]) == [0, 1, 2]
    with pytest.raises(errors.InvalidPartitionsError):
        admin.create_partitions({topic: 2})


def test_options_are_altered_and_reset(admin: Admin, topic: str) -> None:
    """Set, append, subtract, and back to the default."""
    admin.alter_configs([ConfigResource("topic", topic, {"retention.ms": "1234567"})])
    assert options(admin, "topic", topic)["retention.ms"]["value"] == "1234567"

    admin.alter_configs([ConfigResource("topic", topic, {"cleanup.policy": (AlterConfigOp.APPEND, "compact")})])
    assert options(admin, "topic", topic)["cleanup.policy"]["value"] == "delete,compact"
    admin.alter_configs([ConfigResource("topic", topic, {"cleanup.policy": (AlterConfigOp.SUBTRACT, "delete")})])
    assert options(admin, "topic", topic)["cleanup.policy"]["value"] == "compact"

    admin.reset_configs([ConfigResource("topic", topic, ["cleanup.policy"])])
    assert set(options(admin, "topic", topic)) == {"retention.ms"}


def test_all_options_are_described(admin: Admin, topic: str, broker: BrokerProcess) -> None:
    """Of topics and brokers, with defaults."""
    assert options(admin, "topic", topic, "all")["cleanup.policy"]["value"] == "delete"
    of_broker = options(admin, "broker", str(broker.broker_id), "all")
    assert of_broker["broker.id"]["value"] == str(broker.broker_id)


def test_records_are_deleted_up_to_an_offset(admin: Admin, topic: str, broker: BrokerProcess) -> None:
    """The answer tells where the log begins now."""
    Confluent().produce(broker.bootstrap, topic, [Sent(b"%d" % number) for number in range(10)])

    deleted = admin.delete_records({TopicPartition(topic, 0): 7})

    assert deleted[TopicPartition(topic, 0)]["low_watermark"] == 7
    assert Confluent().consume(broker.bootstrap, topic, 1, start=7)[0].value == b"7"


def test_the_cluster_and_its_log_directories_are_described(admin: Admin, topic: str, broker: BrokerProcess) -> None:
    """One broker with one directory, and what each topic takes there."""
    Confluent().produce(broker.bootstrap, topic, [Sent(b"x" * 1000)])

    described = admin.describe_cluster()
    assert described["controller_id"] == broker.broker_id
    assert [(each["broker_id"], each["host"], each["port"]) for each in described["brokers"]] == [
        (broker.broker_id, broker.host, broker.port)
    ]
    (of_broker,) = admin.describe_log_dirs([topic])
    (log_dir,) = of_broker["log_dirs"]
    assert log_dir["log_dir"] == str(broker.log_dir)
    (of_topic,) = log_dir["topics"]
    assert of_topic["name"] == topic
    assert of_topic["partitions"][0]["partition_size"] > 1000
