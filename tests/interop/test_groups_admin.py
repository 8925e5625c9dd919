"""Groups from outside: what admin clients and Kafka's own tool list, describe, move and delete."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaError, KafkaException
from tests.interop.clients import python
from tests.interop.clients.confluent import Confluent
from tests.interop.clients.record import DEADLINE_S, Sent
from tests.interop.conftest import CreateTopic
from tests.interop.members.all import LIBRARIES, member
from tests.interop.members.member import Commit, Joining, watch_until
from tests.kit.broker_process import BrokerProcess
from tests.kit.java_tools import RunTool
from tests.kit.waiting import until

from ottla.protocol.identifiers import TopicPartition

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
COUNT = 10

# The stubs of confluent-kafka say little about its admin client.
api: Any = confluent_kafka.admin


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[Any]:
    """confluent-kafka's admin client, closed in the end: an error that a test keeps would keep it, too."""
    with api.AdminClient({"bootstrap.servers": broker.bootstrap}) as client:
        yield client


@pytest.fixture
def group() -> str:
    """A name that no other group has."""
    return f"group-{uuid.uuid4().hex}"


@pytest.fixture
def filled(broker: BrokerProcess, create_topic: CreateTopic) -> TopicPartition:
    """The only partition of a topic, with the values 0 to 9."""
    topic = create_topic()
    Confluent().produce(broker.bootstrap, topic, [Sent(b"%d" % number) for number in range(COUNT)])
    return TopicPartition(topic, 0)


def test_confluents_admin_client_sees_and_changes_groups(
    broker: BrokerProcess, admin: Any, filled: TopicPartition, group: str
) -> None:
    """List, describe, list offsets, alter them and delete the group: refused while it has members, done after."""
    moved = ConsumerGroupTopicPartitions(group, [confluent_kafka.TopicPartition(*filled, 3)])

    def result(future: Any) -> Any:
        return future.result(DEADLINE_S)

    def state(wanted: set[ConsumerGroupState]) -> list[tuple[ConsumerGroupState, bool]]:
        listed = result(admin.list_consumer_groups(states=wanted)).valid
        return [(one.state, one.is_simple_consumer_group) for one in listed if one.group_id == group]

    with member("confluent-kafka", broker.bootstrap, Joining(group, (filled.topic,), instance_id="one")) as reader:
        watch_until(lambda: len(reader.values) == COUNT, reader)
        reader.commit({filled: Commit(7, "seven")})
        assert state({ConsumerGroupState.STABLE}) == [(ConsumerGroupState.STABLE, False)]
        assert state({ConsumerGroupState.EMPTY}) == []
        described = result(admin.describe_consumer_groups([group])[group])
        assert (described.state, described.partition_assignor) == (ConsumerGroupState.STABLE, "range")
        assert described.coordinator.id == broker.broker_id
        (only,) = described.members
        assert (only.client_id, only.group_instance_id) == ("rdkafka", "one")
        assert only.host.strip("/") == broker.host
        assert [(one.topic, one.partition) for one in only.assignment.topic_partitions] == [filled]
        with pytest.raises(KafkaException) as refused:
            result(admin.delete_consumer_groups([group])[group])
        assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
        (unmoved,) = result(admin.alter_consumer_group_offsets([moved])[group]).topic_partitions
        assert unmoved.error.code() == KafkaError.UNKNOWN_MEMBER_ID

    # A static member is expected back until its session is over; an admin may throw it out before.
    with python.admin(broker.bootstrap) as other:
        assert other.describe_groups([group])[group]["group_state"] == "Stable"
        throw_out(other, group, "one")
    (now,) = result(admin.alter_consumer_group_offsets([moved])[group]).topic_partitions
    assert now.error is None
    listed = result(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group])
    assert [(one.topic, one.partition, one.offset) for one in listed.topic_partitions] == [(*filled, 3)]
    assert state({ConsumerGroupState.EMPTY}) == [(ConsumerGroupState.EMPTY, False)]
    assert result(admin.delete_consumer_groups([group])[group]) is None
    assert state(set()) == []


def throw_out(admin: Any, group: str, instance_id: str) -> None:
    """Remove a static member."""
    removed = admin.remove_group_members(group, [python.MemberToRemove(group_instance_id=instance_id)])
    assert list(removed.values()) == [python.errors.NoError]


def test_kafka_pythons_admin_client_sees_and_changes_groups(
    broker: BrokerProcess, filled: TopicPartition, group: str
) -> None:
    """The same calls, and those that confluent-kafka does not have: reset to an end, and delete single offsets."""
    ours = python.TopicPartition(*filled)
    with python.admin(broker.bootstrap) as admin:
        with member("aiokafka", broker.bootstrap, Joining(group, (filled.topic,), assignor="roundrobin")) as reader:
            watch_until(lambda: len(reader.values) == COUNT, reader)
            reader.commit({filled: Commit(7, "seven")})
            (listed,) = [one for one in admin.list_groups(states_filter=["Stable"]) if one["group_id"] == group]
            assert (listed["protocol_type"], listed["group_state"]) == ("consumer", "Stable")
            described = admin.describe_groups([group])[group]
            assert (described["error"], described["protocol_data"]) == (None, "roundrobin")
            assert [one["client_id"] for one in described["members"]] == [reader_client_id()]
            (refused,) = admin.delete_group_offsets(group, [ours]).values()
            assert refused is python.errors.GroupSubscribedToTopicError
        (found,) = admin.list_group_offsets([group])[group].items()
        assert (found[0], found[1].offset, found[1].metadata) == (ours, 7, "seven")
        for spec, offset in ((python.OffsetSpec.LATEST, COUNT), (python.OffsetSpec.EARLIEST, 0)):
            assert admin.reset_group_offsets(group, {ours: spec})[ours]["offset"] == offset
            assert admin.list_group_offsets([group])[group][ours].offset == offset
        assert admin.delete_group_offsets(group, [ours]) == {ours: python.errors.NoError}
        assert admin.list_group_offsets([group])[group] == {}
        admin.delete_groups([group])
        assert group not in {one["group_id"] for one in admin.list_groups()}


def reader_client_id() -> str:
    """Return what aiokafka calls itself."""
    import aiokafka

    return f"aiokafka-{aiokafka.__version__}"


def test_kafkas_own_tool_describes_resets_and_deletes_a_group(
    run_tool: RunTool, broker: BrokerProcess, filled: TopicPartition, group: str
) -> None:
    """A group in which Java's console consumer and ours were: its lag, its members, its reset and its end."""
    at = ("--bootstrap-server", broker.bootstrap)
    read = ("--max-messages", "4", "--timeout-ms", "60000", "--consumer-property", "auto.offset.reset=earliest")
    consumed = run_tool(CONSUMER, *at, "--topic", filled.topic, "--group", group, *read)
    assert consumed.split() == ["0", "1", "2", "3"]
    with member("kafka-python", broker.bootstrap, Joining(group, (filled.topic,))) as reader:
        watch_until(lambda: reader.values == [b"%d" % number for number in range(4, COUNT)], reader)
        describe = (GROUPS, *at, "--group", group, "--describe", "--members", "--verbose")
        shown = rf"{group}\s+kafka-python\S+\s+/{broker.host}\s+kafka-python\S+\s+1\s+\(0\)"
        # kafka-python may join a second time, when its metadata comes late. Members have no partitions meanwhile.
        until(lambda: re.search(shown, run_tool(*describe)), "the member has its partition")
        state = run_tool(GROUPS, *at, "--group", group, "--describe", "--state")
        assert re.search(rf"{group}\s+{broker.bootstrap}\s+\({broker.broker_id}\)\s+range\s+Stable\s+1", state)
    offsets = run_tool(GROUPS, *at, "--group", group, "--describe", "--offsets")
    assert re.search(rf"{group}\s+{filled.topic}\s+0\s+4\s+{COUNT}\s+{COUNT - 4}\s", offsets)

    to_earliest = ("--reset-offsets", "--topic", filled.topic, "--to-earliest", "--execute")
    assert re.search(rf"{group}\s+{filled.topic}\s+0\s+0", run_tool(GROUPS, *at, "--group", group, *to_earliest))
    with member("confluent-kafka", broker.bootstrap, Joining(group, (filled.topic,))) as reader:
        watch_until(lambda: len(reader.values) == COUNT, reader)
    deleted = run_tool(GROUPS, *at, "--group", group, "--delete")
    assert "successful" in deleted


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_deleted_group_starts_anew(library: str, broker: BrokerProcess, filled: TopicPartition, group: str) -> None:
    """Its offsets are gone with it, and its name can be used again."""
    with member(library, broker.bootstrap, Joining(group, (filled.topic,))) as reader:
        watch_until(lambda: len(reader.values) == COUNT, reader)
        reader.commit({filled: Commit(COUNT)})
    with python.admin(broker.bootstrap) as admin:
        admin.delete_groups([group])
    with member(library, broker.bootstrap, Joining(group, (filled.topic,))) as reader:
        watch_until(lambda: len(reader.values) == COUNT, reader)
        assert reader.committed(filled) is None
