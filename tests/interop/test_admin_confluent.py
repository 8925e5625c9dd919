"""confluent-kafka's api.AdminClient."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import confluent_kafka.admin
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from tests.interop.clients.confluent import Confluent
from tests.interop.clients.record import DEADLINE_S, Sent
from tests.kit.broker_process import BrokerProcess, topic_name

# The stubs of confluent-kafka say little about its admin client.
Admin = Any
api: Any = confluent_kafka.admin


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[Admin]:
    """An admin client of the shared broker."""
    with api.AdminClient({"bootstrap.servers": broker.bootstrap}) as client:
        yield client


@pytest.fixture
def name(admin: Admin) -> Iterator[str]:
    """A topic of two partitions, which the admin client made and deletes."""
    topic = topic_name()
    results(admin.create_topics([api.NewTopic(topic, 2, 1, config={"retention.ms": "1234567"})]))
    yield topic
    results(admin.delete_topics([topic]))


def results(futures: Mapping[Any, Any]) -> list[Any]:
    """Return what an admin call came to, for each thing that it was about."""
    return [future.result(DEADLINE_S) for future in futures.values()]


def refusal(futures: Mapping[Any, Any]) -> int:
    """Return the code that an admin call was refused with."""
    with pytest.raises(KafkaException) as refused:
        results(futures)
    code: int = refused.value.args[0].code()
    return code


def options(admin: Admin, resource: Any) -> dict[str, Any]:
    """Return the options of a topic or broker."""
    (described,) = results(admin.describe_configs([resource]))
    found: dict[str, Any] = described
    return found


def test_topics_are_created_listed_described_and_deleted(admin: Admin, broker: BrokerProcess) -> None:
    """All calls see the same topic, with its id, and no longer when it is deleted."""
    topic = topic_name()
    results(admin.create_topics([api.NewTopic(topic, 3, 1)]))
    assert refusal(admin.create_topics([api.NewTopic(topic, 3, 1)])) == KafkaError.TOPIC_ALREADY_EXISTS

    assert sorted(admin.list_topics(timeout=DEADLINE_S).topics[topic].partitions) == [0, 1, 2]
    (described,) = results(admin.describe_topics(TopicCollection([topic])))
    assert described.name == topic
    assert str(described.topic_id) != "AAAAAAAAAAAAAAAAAAAAAA"
    assert [(each.id, each.leader.id, [node.id for node in each.isr]) for each in described.partitions] == [
        (index, broker.broker_id, [broker.broker_id]) for index in range(3)
    ]

    results(admin.delete_topics([topic]))
    assert topic not in admin.list_topics(timeout=DEADLINE_S).topics
    assert refusal(admin.delete_topics([topic_name()])) == KafkaError.UNKNOWN_TOPIC_OR_PART


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (api.NewTopic("no spaces", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (api.NewTopic("x" * 250, 1, 1), KafkaError.TOPIC_EXCEPTION),
        (api.NewTopic("..", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (api.NewTopic("partitions", 0, 1), KafkaError.INVALID_PARTITIONS),
        (api.NewTopic("replicas", 1, 2), KafkaError.INVALID_REPLICATION_FACTOR),
        (api.NewTopic("options", 1, 1, config={"no.such.option": "1"}), KafkaError.INVALID_CONFIG),
        (api.NewTopic("values", 1, 1, config={"retention.ms": "soon"}), KafkaError.INVALID_CONFIG),
    ],
    ids=lambda value: value.topic[:10] if isinstance(value, api.NewTopic) else None,
)
def test_a_topic_that_cannot_be_is_refused(bad: Any, code: int, admin: Admin) -> None:
    """With the code that says what is wrong, and nothing is created."""
    assert refusal(admin.create_topics([bad])) == code
    assert bad.topic not in admin.list_topics(timeout=DEADLINE_S).topics


def test_creation_may_be_tried_out(admin: Admin) -> None:
    """With validate_only nothing is created."""
    topic = topic_name()
    results(admin.create_topics([api.NewTopic(topic, 1, 1)], validate_only=True))

    assert topic not in admin.list_topics(timeout=DEADLINE_S).topics


def test_partitions_are_added_and_never_taken_away(admin: Admin, name: str, broker: BrokerProcess) -> None:
    """New partitions take records at once."""
    results(admin.create_partitions([api.NewPartitions(name, 4)]))

    assert sorted(admin.list_topics(timeout=DEADLINE_S).topics[name].partitions) == [0, 1, 2, 3]
    assert Confluent().produce(broker.bootstrap, name, [Sent(b"value")], partition=3) == [0]
    assert refusal(admin.create_partitions([api.NewPartitions(name, 1)])) == KafkaError.INVALID_PARTITIONS


def test_options_of_a_topic_are_described_with_value_and_source(admin: Admin, name: str) -> None:
    """What was set, what is set for the broker, and what is a default can be told apart."""
    found = options(admin, api.ConfigResource(api.ResourceType.TOPIC, name))

    assert found["retention.ms"].value == "1234567"
    assert (found["retention.ms"].is_default, found["cleanup.policy"].is_default) == (False, True)
    assert found["cleanup.policy"].value == "delete"
    assert len(found) > 20


def test_options_of_a_broker_are_described(admin: Admin, broker: BrokerProcess) -> None:
    """With those that were given at its start, and which of them are fixed."""
    found = options(admin, api.ConfigResource(api.ResourceType.BROKER, str(broker.broker_id)))

    assert found["broker.id"].value == str(broker.broker_id)
    assert (found["broker.id"].is_read_only, found["log.retention.ms"].is_read_only) == (True, False)
    assert found["zookeeper.connect"].value == broker.zookeeper


def test_options_are_altered_one_by_one_and_lists_item_by_item(admin: Admin, name: str) -> None:
    """Set, append, subtract and delete; other options stay as they are."""

    def alter(option: str, operation: Any, value: str | None) -> str | None:
        entry = api.ConfigEntry(option, value, incremental_operation=operation)
        resource = api.ConfigResource(api.ResourceType.TOPIC, name, incremental_configs=[entry])
        results(admin.incremental_alter_configs([resource]))
        altered: str | None = options(admin, api.ConfigResource(api.ResourceType.TOPIC, name))[option].value
        return altered

    assert alter("segment.ms", api.AlterConfigOpType.SET, "60000") == "60000"
    assert alter("cleanup.policy", api.AlterConfigOpType.APPEND, "compact") == "delete,compact"
    assert alter("cleanup.policy", api.AlterConfigOpType.SUBTRACT, "delete") == "compact"
    assert alter("cleanup.policy", api.AlterConfigOpType.DELETE, None) == "delete"
    assert options(admin, api.ConfigResource(api.ResourceType.TOPIC, name))["retention.ms"].value == "1234567"
    assert options(admin, api.ConfigResource(api.ResourceType.TOPIC, name))["segment.ms"].value == "60000"


@pytest.mark.filterwarnings("ignore:alter_configs has been deprecated:DeprecationWarning")
def test_altering_options_as_a_whole_resets_the_others(admin: Admin, name: str) -> None:
    """AlterConfigs is what older tools use."""
    results(admin.alter_configs([api.ConfigResource(api.ResourceType.TOPIC, name, {"segment.ms": "60000"})]))

    found = options(admin, api.ConfigResource(api.ResourceType.TOPIC, name))
    assert found["segment.ms"].value == "60000"
    assert found["retention.ms"].is_default


def test_a_wrong_option_changes_nothing(admin: Admin, name: str) -> None:
    """Neither the wrong one nor those next to it."""
    entries = [
        api.ConfigEntry("segment.ms", "60000", incremental_operation=api.AlterConfigOpType.SET),
        api.ConfigEntry("retention.ms", "soon", incremental_operation=api.AlterConfigOpType.SET),
    ]
    resource = api.ConfigResource(api.ResourceType.TOPIC, name, incremental_configs=entries)

    assert refusal(admin.incremental_alter_configs([resource])) == KafkaError.INVALID_CONFIG
    found = options(admin, api.ConfigResource(api.ResourceType.TOPIC, name))
    assert (found["segment.ms"].is_default, found["retention.ms"].value) == (True, "1234567")


def test_records_are_deleted_up_to_an_offset(admin: Admin, name: str, broker: BrokerProcess) -> None:
    """The log then begins there, for consumers as for those who ask."""
    Confluent().produce(broker.bootstrap, name, [Sent(b"%d" % number) for number in range(10)])

    (deleted,) = results(admin.delete_records([TopicPartition(name, 0, 4)]))
    assert deleted.low_watermark == 4
    (earliest,) = results(admin.list_offsets({TopicPartition(name, 0): api.OffsetSpec.earliest()}))
    assert earliest.offset == 4
    assert Confluent().consume(broker.bootstrap, name, 1, start=4)[0].value == b"4"
    assert refusal(admin.delete_records([TopicPartition(name, 0, 11)])) == KafkaError.OFFSET_OUT_OF_RANGE


def test_offsets_are_listed_by_time(admin: Admin, name: str, broker: BrokerProcess) -> None:
    """Earliest, latest, at a time, and of the largest timestamp."""
    records = [Sent(b"value", timestamp_ms=1_700_000_000_000 + number) for number in (0, 500, 100)]
    Confluent().produce(broker.bootstrap, name, records)

    for spec, offset in (
        (api.OffsetSpec.earliest(), 0),
        (api.OffsetSpec.latest(), 3),
        (api.OffsetSpec.max_timestamp(), 1),
        (api.OffsetSpec.for_timestamp(1_700_000_000_050), 1),
    ):
        (found,) = results(admin.list_offsets({TopicPartition(name, 0): spec}))
        assert found.offset == offset


def test_the_cluster_is_described(admin: Admin, broker: BrokerProcess) -> None:
    """One broker, which is also the controller."""
    described = admin.describe_cluster().result(DEADLINE_S)

    assert [(node.id, node.host, node.port) for node in described.nodes] == [
        (broker.broker_id, broker.host, broker.port)
    ]
    assert described.controller.id == broker.broker_id
    assert described.cluster_id
