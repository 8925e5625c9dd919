"""Which rights a transactional producer needs, told by confluent-kafka: on our broker as on Kafka's.

Everybody is `User:ANONYMOUS` here, the broker itself included. What lets clients change rights, and brokers work,
stands in ZooKeeper before the broker starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer, TopicPartition
from tests.broker.sessions import sessions
from tests.interop.clients import confluent
from tests.interop.conftest import CreateTopic
from tests.interop.transactions.librdkafka import api, closed, refused, send
from tests.kit.broker_process import BrokerProcess
from tests.kit.kafka_process import KafkaProcess, kafka_or_skip
from tests.kit.waiting import DEADLINE_S, until
from tests.kit.zookeeper import ZooKeeper, ZooKeeperServer

from ottla.broker.security.acls.acl import AclEntry, ResourcePattern
from ottla.broker.security.acls.acl_store import AclStore
from ottla.broker.security.session import ANONYMOUS
from ottla.protocol.acls import AclOperation, AclPermissionType, ResourceType

OPTIONS = (
    "authorizer.class.name=kafka.security.authorizer.AclAuthorizer",
    "transaction.state.log.num.partitions=3",
)
ON_CLUSTER = (AclOperation.CLUSTER_ACTION, AclOperation.ALTER, AclOperation.CREATE)

Allow = Callable[[str, str, str], None]


@pytest.fixture(
    scope="module",
    params=[BrokerProcess, pytest.param(KafkaProcess, marks=pytest.mark.long)],
    ids=["ottla", "kafka-3.9"],
)
def broker(
    request: pytest.FixtureRequest, zookeeper_server: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """A broker on which nobody may do anything with topics, groups and transactional ids."""
    if request.param is KafkaProcess:
        kafka_or_skip()
    ensemble = ZooKeeper(zookeeper_server)
    with sessions(ensemble) as connect:
        store = AclStore(connect(), lambda _snapshot: None)
        store.start()
        rights = [AclEntry(ANONYMOUS, "*", operation, AclPermissionType.ALLOW) for operation in ON_CLUSTER]
        store.change(ResourcePattern(ResourceType.CLUSTER, "kafka-cluster"), added=rights)
        store.close()
    with request.param(tmp_path_factory.mktemp("closed"), ensemble.connect, *OPTIONS) as started:
        # Kafka does not know it at first, and a request of librdkafka that needs it then fails after a minute.
        with api.AdminClient({"bootstrap.servers": started.bootstrap}) as admin:
            until(lambda: admin.list_topics(timeout=DEADLINE_S).controller_id == 1, "the broker is the controller")
        yield started


@pytest.fixture
def allow(broker: BrokerProcess) -> Iterator[Allow]:
    """Give a right, by the names of the kind of resource, of the resource, and of the operation."""
    with api.AdminClient({"bootstrap.servers": broker.bootstrap}) as admin:

        def give(kind: str, name: str, operation: str) -> None:
            binding = api.AclBinding(
                api.ResourceType[kind],
                name,
                api.ResourcePatternType.LITERAL,
                ANONYMOUS,
                "*",
                api.AclOperation[operation],
                api.AclPermissionType.ALLOW,
            )
            for given in admin.create_acls([binding]).values():
                given.result(DEADLINE_S)

        yield give


@pytest.fixture
def settings(broker: BrokerProcess, transactional_id: str) -> dict[str, Any]:
    """The options of a transactional producer."""
    return {"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id, "linger.ms": 0, "log_level": 0}


def test_the_right_on_the_transactional_id_comes_first(
    settings: dict[str, Any], transactional_id: str, allow: Allow
) -> None:
    """Whoever may describe it finds the coordinator, and is refused there; whoever may write it gets an epoch."""
    for operation in (None, "DESCRIBE"):
        if operation is not None:
            allow("TRANSACTIONAL_ID", transactional_id, operation)
        with (
            closed(Producer(settings)) as client,
            refused(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, is_fatal=True),
        ):
            client.init_transactions(DEADLINE_S)
    allow("TRANSACTIONAL_ID", transactional_id, "WRITE")
    with closed(Producer(settings)) as client:
        client.init_transactions(DEADLINE_S)


def test_rights_that_are_missing_later_spoil_one_transaction_only(
    broker: BrokerProcess,
    create_topic: CreateTopic,
    settings: dict[str, Any],
    transactional_id: str,
    group: str,
    allow: Allow,
) -> None:
    """On a topic, and on the group of the offsets: the transaction must be aborted, and the next one succeeds."""
    allow("TRANSACTIONAL_ID", transactional_id, "WRITE")
    topic, other = create_topic(), create_topic()
    allow("TOPIC", topic, "WRITE")
    allow("TOPIC", topic, "READ")
    allow("TOPIC", other, "DESCRIBE")
    with closed(Producer(settings)) as client, _reader(broker, group) as reader:
        client.init_transactions(DEADLINE_S)
        client.begin_transaction()
        send(client, topic, b"a")
        client.produce(other, b"a", partition=0)
        with refused(KafkaError.TOPIC_AUTHORIZATION_FAILED, requires_abort=True):
            client.commit_transaction(DEADLINE_S)
        client.abort_transaction(DEADLINE_S)

        client.begin_transaction()
        send(client, topic, b"b")
        offsets, metadata = [TopicPartition(topic, 0, 1)], reader.consumer_group_metadata()
        with refused(KafkaError.GROUP_AUTHORIZATION_FAILED, requires_abort=True):
            client.send_offsets_to_transaction(offsets, metadata, DEADLINE_S)
        client.abort_transaction(DEADLINE_S)

        allow("GROUP", group, "READ")
        client.begin_transaction()
        send(client, topic, b"c")
        client.send_offsets_to_transaction(offsets, metadata, DEADLINE_S)
        allow("TOPIC", other, "WRITE")
        send(client, other, b"c")
        client.commit_transaction(DEADLINE_S)
    with _reader(broker, group) as reader:
        assert [found.offset for found in reader.committed([TopicPartition(topic, 0)], DEADLINE_S)] == [1]
        reader.assign([TopicPartition(topic, 0, 0)])
        assert [record.value for record in confluent.receive(reader, 1)] == [b"c"]


def _reader(broker: BrokerProcess, group: str) -> Any:
    """Give a consumer that sees what is certain."""
    return confluent.consumer(broker.bootstrap, group_id=group, isolation_level="read_committed")
