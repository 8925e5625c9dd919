"""ACLs, by other people's tools and clients, on a broker that asks before it serves.

Everybody is `User:ANONYMOUS` here, the broker itself included. What it needs to work, and what lets clients change
ACLs, stands in ZooKeeper before it starts; topics and groups are closed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import confluent_kafka.admin
import kafka.admin
import pytest
from confluent_kafka import KafkaError, KafkaException
from tests.broker.sessions import sessions
from tests.interop.clients.record import DEADLINE_S
from tests.kit.broker_process import BrokerProcess, topic_name
from tests.kit.java_tools import RunTool
from tests.kit.waiting import until
from tests.kit.zookeeper import ZooKeeper, ZooKeeperServer

from ottla.broker.security.acls.acl import AclEntry, ResourcePattern
from ottla.broker.security.acls.acl_store import AclStore
from ottla.broker.security.session import ANONYMOUS
from ottla.protocol.acls import AclOperation, AclPermissionType, ResourceType

ALLOWED = (AclOperation.CLUSTER_ACTION, AclOperation.ALTER, AclOperation.CREATE)
AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
ACL_TOOL = "kafka.admin.AclCommand"

# The stubs of both clients say little about their admin clients.
confluent: Any = confluent_kafka.admin
python: Any = kafka.admin


@pytest.fixture(scope="module")
def closed(zookeeper_server: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with an authorizer and no super user."""
    ensemble = ZooKeeper(zookeeper_server)
    with sessions(ensemble) as connect:
        store = AclStore(connect(), lambda _snapshot: None)
        store.start()
        rights = [AclEntry(ANONYMOUS, "*", operation, AclPermissionType.ALLOW) for operation in ALLOWED]
        store.change(ResourcePattern(ResourceType.CLUSTER, "kafka-cluster"), added=rights)
        store.close()
    option = f"authorizer.class.name={AUTHORIZER}"
    with BrokerProcess(tmp_path_factory.mktemp("closed"), ensemble.connect, option) as broker:
        yield broker


@pytest.fixture
def admin(closed: BrokerProcess) -> Iterator[Any]:
    """confluent-kafka's admin client."""
    with confluent.AdminClient({"bootstrap.servers": closed.bootstrap}) as client:
        yield client


@pytest.fixture
def topic(admin: Any) -> str:
    """A topic that nobody may use; creating it is a right on the cluster."""
    name = topic_name()
    (created,) = admin.create_topics([confluent.NewTopic(name, 1, 1)]).values()
    created.result(DEADLINE_S)
    return name


def acl(topic: str, operation: Any, *, principal: str = ANONYMOUS, how: Any = None) -> Any:
    """An ALLOW on a topic, as confluent-kafka has it."""
    return confluent.AclBinding(
        confluent.ResourceType.TOPIC,
        topic,
        how or confluent.ResourcePatternType.LITERAL,
        principal,
        "*",
        operation,
        confluent.AclPermissionType.ALLOW,
    )


def any_acl(topic: str, how: Any) -> Any:
    """A filter for all ACLs that concern a topic."""
    return confluent.AclBindingFilter(
        confluent.ResourceType.TOPIC,
        topic,
        how,
        None,
        None,
        confluent.AclOperation.ANY,
        confluent.AclPermissionType.ANY,
    )


def produced(broker: BrokerProcess, topic: str) -> int | None:
    """Produce a record with confluent-kafka; return the code that it was refused with."""
    outcomes: list[Any] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "message.timeout.ms": 30_000})
    producer.produce(topic, b"v", on_delivery=lambda error, _message: outcomes.append(error))
    producer.flush(DEADLINE_S)
    (error,) = outcomes
    return None if error is None else error.code()


def test_confluent_creates_describes_and_deletes_acls(admin: Any, closed: BrokerProcess, topic: str) -> None:
    """What is granted holds when the call returns, and what is taken back no longer."""
    assert produced(closed, topic) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    prefixed = confluent.ResourcePatternType.PREFIXED
    bindings = [
        acl(topic, confluent.AclOperation.WRITE),
        acl(topic, confluent.AclOperation.READ, principal="User:CN=bob,O=x"),
        acl(topic[:10], confluent.AclOperation.DESCRIBE, how=prefixed),
    ]
    for future in admin.create_acls(bindings).values():
        future.result(DEADLINE_S)
    found = admin.describe_acls(any_acl(topic, confluent.ResourcePatternType.MATCH)).result(DEADLINE_S)
    assert set(found) == set(bindings)
    assert produced(closed, topic) is None
    (deleted,) = admin.delete_acls([any_acl(topic, confluent.ResourcePatternType.LITERAL)]).values()
    assert set(deleted.result(DEADLINE_S)) == set(bindings[:2])
    assert produced(closed, topic) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    (deleted,) = admin.delete_acls([any_acl(topic[:10], prefixed)]).values()
    assert set(deleted.result(DEADLINE_S)) == set(bindings[2:])


def test_confluent_reads_with_rights_on_topic_and_group_alone(admin: Any, closed: BrokerProcess, topic: str) -> None:
    """Without the right on the group the consumer is told so, with it the records come."""
    for future in admin.create_acls([acl(topic, confluent.AclOperation.ALL)]).values():
        future.result(DEADLINE_S)
    assert produced(closed, topic) is None
    group = f"group-{topic}"
    options = {
        "bootstrap.servers": closed.bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
    }
    refused = consumed(options, topic)
    assert refused == KafkaError.GROUP_AUTHORIZATION_FAILED
    reading = confluent.AclBinding(
        confluent.ResourceType.GROUP,
        group,
        confluent.ResourcePatternType.LITERAL,
        ANONYMOUS,
        "*",
        confluent.AclOperation.READ,
        confluent.AclPermissionType.ALLOW,
    )
    for future in admin.create_acls([reading]).values():
        future.result(DEADLINE_S)
    assert consumed(options, topic) == b"v"


def consumed(options: dict[str, Any], topic: str) -> Any:
    """Return the first value that is read, or the code that the consumer is refused with."""
    consumer: Any = confluent_kafka.Consumer(options)
    try:
        consumer.subscribe([topic])
        message = consumer.poll(DEADLINE_S)
        assert message is not None
        return message.value() if message.error() is None else message.error().code()
    except KafkaException as error:
        return error.args[0].code()
    finally:
        consumer.close()


def test_kafka_python_creates_describes_and_deletes_acls(closed: BrokerProcess, topic: str) -> None:
    """And is told what it may not do."""
    client = python.KafkaAdminClient(bootstrap_servers=closed.bootstrap)
    try:
        pattern = python.ResourcePattern(python.ResourceType.TOPIC, topic)
        wanted = python.ACL(
            principal="User:carol",
            host="10.0.0.1",
            operation=python.ACLOperation.ALTER_CONFIGS,
            permission_type=python.ACLPermissionType.DENY,
            resource_pattern=pattern,
        )
        everything = python.ACLFilter(
            principal=None,
            host=None,
            operation=python.ACLOperation.ANY,
            permission_type=python.ACLPermissionType.ANY,
            resource_pattern=pattern,
        )
        client.create_acls([wanted])
        assert described(client, everything) == [wanted]
        client.delete_acls([everything])
        assert described(client, everything) == []
    finally:
        client.close()


def described(client: Any, wanted: Any) -> list[Any]:
    """The ACLs that kafka-python finds."""
    found = client.describe_acls(wanted)
    acls: list[Any] = found[0] if isinstance(found, tuple) else found
    return acls


def test_what_apache_kafka_writes_to_zookeeper_holds_here_and_the_reverse(
    closed: BrokerProcess, topic: str, admin: Any, run_tool: RunTool
) -> None:
    """Kafka's own authorizer, on the same nodes: a cluster of both kinds of brokers has one set of ACLs."""
    direct = ("--authorizer-properties", f"zookeeper.connect={closed.zookeeper}")
    grant = ("--allow-principal", ANONYMOUS, "--operation", "Write", "--operation", "Describe")
    run_tool(ACL_TOOL, *direct, "--add", *grant, "--topic", topic[:12], "--resource-pattern-type", "prefixed")

    def operations() -> set[Any]:
        found = admin.describe_acls(any_acl(topic, confluent.ResourcePatternType.MATCH)).result(DEADLINE_S)
        return {binding.operation for binding in found}

    # The tool has not told the broker, which hears of it from ZooKeeper.
    granted = {confluent.AclOperation.WRITE, confluent.AclOperation.DESCRIBE}
    until(lambda: operations() == granted, "the broker knows what was granted")
    assert produced(closed, topic) is None
    for future in admin.create_acls([acl(topic, confluent.AclOperation.READ, principal="User:CN=bob,O=x")]).values():
        future.result(DEADLINE_S)
    listed = run_tool(ACL_TOOL, *direct, "--list", "--topic", topic, "--resource-pattern-type", "match")
    assert "principal=User:CN=bob,O=x, host=*, operation=READ, permissionType=ALLOW" in listed
    run_tool(ACL_TOOL, *direct, "--remove", "--force", "--topic", topic[:12], "--resource-pattern-type", "prefixed")
    until(lambda: not operations() & granted, "the broker knows that it was removed")
    assert produced(closed, topic) == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_kafkas_tool_works_over_the_protocol(closed: BrokerProcess, topic: str, run_tool: RunTool) -> None:
    """Adding, listing and removing."""
    server = ("--bootstrap-server", closed.bootstrap)
    run_tool(ACL_TOOL, *server, "--add", "--deny-principal", "User:eve", "--operation", "Write", "--topic", topic)
    listed = run_tool(ACL_TOOL, *server, "--list", "--topic", topic)
    assert "principal=User:eve, host=*, operation=WRITE, permissionType=DENY" in listed
    run_tool(ACL_TOOL, *server, "--remove", "--force", "--topic", topic)
    assert "eve" not in run_tool(ACL_TOOL, *server, "--list", "--topic", topic)


def test_without_an_authorizer_there_are_no_acls(broker: BrokerProcess) -> None:
    """Each call is told so."""
    with confluent.AdminClient({"bootstrap.servers": broker.bootstrap}) as admin:
        # confluent-kafka takes an error of DescribeAcls for an empty list.
        calls = [
            *admin.create_acls([acl("t", confluent.AclOperation.READ)]).values(),
            *admin.delete_acls([any_acl("t", confluent.ResourcePatternType.ANY)]).values(),
        ]
        for call in calls:
            with pytest.raises(KafkaException) as refused:
                call.result(DEADLINE_S)
            assert refused.value.args[0].code() == KafkaError.SECURITY_DISABLED
