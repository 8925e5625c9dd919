"""aiokafka's AIOKafkaAdminClient."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from tests.interop.clients.confluent import Confluent
from tests.interop.clients.record import DEADLINE_S, Sent
from tests.kit.broker_process import BrokerProcess, topic_name

from ottla.protocol.errors import ErrorCode

TIMEOUT_MS = int(DEADLINE_S * 1000)


@pytest.fixture
async def admin(broker: BrokerProcess) -> AsyncIterator[Any]:
    """An admin client of aiokafka."""
    client = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await client.start()
    yield client
    await client.close()


async def option(admin: Any, topic: str, name: str) -> str:
    """Return the value of a topic's option."""
    (response,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    (_code, _message, _type, described, entries) = response.resources[0]
    assert described == topic
    return next(str(entry[1]) for entry in entries if entry[0] == name)


async def test_topics_are_created_listed_described_enlarged_and_deleted(admin: Any) -> None:
    """All calls see the same topic, and no longer when it is deleted."""
    topic = topic_name()
    created = await admin.create_topics([NewTopic(topic, 2, 1)], timeout_ms=TIMEOUT_MS)
    assert [error[:2] for error in created.topic_errors] == [(topic, 0)]
    again = await admin.create_topics([NewTopic(topic, 2, 1)], timeout_ms=TIMEOUT_MS)
    assert again.topic_errors[0][1] == ErrorCode.TOPIC_ALREADY_EXISTS
    assert topic in await admin.list_topics()
    (described,) = await admin.describe_topics([topic])
    assert [partition["leader"] for partition in described["partitions"]] == [1, 1]

    await admin.create_partitions({topic: NewPartitions(3)}, timeout_ms=TIMEOUT_MS)
    (described,) = await admin.describe_topics([topic])
    assert len(described["partitions"]) == 3

    await admin.delete_topics([topic], timeout_ms=TIMEOUT_MS)
    assert topic not in await admin.list_topics()


async def test_options_are_described_and_altered(admin: Any, topic: str) -> None:
    """aiokafka sets the options of a topic as a whole."""
    assert await option(admin, topic, "cleanup.policy") == "delete"
    altered = {"cleanup.policy": "compact", "retention.ms": "1234567"}
    await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, altered)])
    assert await option(admin, topic, "cleanup.policy") == "compact"
    assert await option(admin, topic, "retention.ms") == "1234567"


async def test_records_are_deleted_up_to_an_offset(admin: Any, broker: BrokerProcess, topic: str) -> None:
    """The answer tells where the log begins now."""
    Confluent().produce(broker.bootstrap, topic, [Sent(b"%d" % number) for number in range(10)])
    at = TopicPartition(topic, 0)
    assert await admin.delete_records({at: RecordsToDelete(before_offset=3)}, timeout_ms=TIMEOUT_MS) == {at: 3}


async def test_the_cluster_is_described(admin: Any, broker: BrokerProcess) -> None:
    """One broker, which is also the controller."""
    described = await admin.describe_cluster()
    assert described["controller_id"] == broker.broker_id
    assert [each["port"] for each in described["brokers"]] == [broker.port]
