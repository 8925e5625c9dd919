"""librdkafka with `group.protocol=consumer`: members come, go and die, and what they read is always one's alone."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from tests.interop.consumer_protocol_members import (
    DEADLINE_S,
    MEMBER,
    PARTITIONS,
    SESSION_MS,
    Member,
    api,
    create,
    members,
    of,
    poll_until,
    produce,
    share,
)
from tests.kit.broker_process import BrokerProcess, topic_name
from tests.kit.guarded_process import GuardedProcess
from tests.kit.java_tools import TOOL_SECONDS_MAX, RunTool
from tests.kit.waiting import until
from tests.kit.zookeeper import ZooKeeper, ZooKeeperServer


@pytest.fixture(scope="module")
def broker(zookeeper_server: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that does not wait long for silent members."""
    options = (
        f"group.consumer.min.session.timeout.ms={SESSION_MS}",
        f"group.consumer.session.timeout.ms={SESSION_MS}",
        "group.consumer.min.heartbeat.interval.ms=200",
        "group.consumer.heartbeat.interval.ms=200",
    )
    with BrokerProcess(tmp_path_factory.mktemp("broker"), ZooKeeper(zookeeper_server).connect, *options) as own:
        yield own


@pytest.fixture
def topic(broker: BrokerProcess) -> str:
    """A topic with some partitions."""
    return create(broker, topic_name(), PARTITIONS)


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[Any]:
    """confluent-kafka's admin client, closed in the end: an error that a test keeps would keep it, too."""
    with api.AdminClient({"bootstrap.servers": broker.bootstrap}) as client:
        yield client


@pytest.fixture
def group() -> str:
    """A name that no other group has."""
    return f"group-{uuid.uuid4().hex}"


def test_two_members_share_and_one_leaves(broker: BrokerProcess, topic: str, group: str) -> None:
    """The second gets half of it, and the first all again; every record is read once."""
    produce(broker, topic, 0, 100)
    with members(broker, group, 1, topic) as (a,):
        poll_until(lambda: a.has == of(topic) and len(a.values) == 100, a)
        b = Member(broker, group, topic)
        poll_until(lambda: share(topic, a, b), a, b)
        a.consumer.commit(asynchronous=False)
        produce(broker, topic, 100, 100)
        poll_until(lambda: len(a.values) + len(b.values) >= 200, a, b)
        b.consumer.commit(asynchronous=False)
        b.close()
        poll_until(lambda: a.has == of(topic), a)
        assert sorted(a.values + b.values) == list(range(200))
        # What it keeps it is not asked to give back.
        assert a.events == ["got 4", "gave 2", "got 2"]
        assert b.events[0] == "got 2"


def test_the_partitions_of_a_killed_member_go_to_the_others(
    broker: BrokerProcess, topic: str, group: str, tmp_path: Path
) -> None:
    """When its session has ended."""
    log = tmp_path / "member.log"
    command = [sys.executable, "-c", MEMBER, broker.bootstrap, group, topic]
    killed = GuardedProcess(command, log, dict(os.environ))
    try:
        until(lambda: b"has 4" in log.read_bytes(), "the other process has all")
        with members(broker, group, 1, topic) as (a,):
            poll_until(lambda: len(a.has) == 2, a)
            killed.end(signal.SIGKILL)
            began = time.monotonic()
            poll_until(lambda: a.has == of(topic), a)
            assert time.monotonic() - began > SESSION_MS / 1000 - 2
    finally:
        if killed.poll() is None:
            killed.end(signal.SIGKILL)


def test_who_comes_after_goes_on_where_the_last_one_stopped(broker: BrokerProcess, topic: str, group: str) -> None:
    """Commits of members count, by hand and at the end."""
    produce(broker, topic, 0, 40)
    for first in (0, 40):
        with members(broker, group, 1, topic, enable_auto_commit=first == 0) as (a,):
            poll_until(lambda: len(a.values) == 40, a)
            if first:
                a.consumer.commit(asynchronous=False)
        assert sorted(a.values) == list(range(first, first + 40))
        produce(broker, topic, first + 40, 40)
    with members(broker, group, 1, topic) as (a,):
        poll_until(lambda: len(a.values) == 40, a)
    assert sorted(a.values) == list(range(80, 120))


def test_an_expression_takes_in_topics_that_come_later(broker: BrokerProcess, group: str) -> None:
    """And leaves out those that do not match."""
    prefix = topic_name()
    first = create(broker, f"{prefix}.first", 2)
    create(broker, f"other.{prefix}")
    with members(broker, group, 1, f"^{prefix}\\..*") as (a,):
        poll_until(lambda: a.has == of(first, 2), a)
        second = create(broker, f"{prefix}.second", 1)
        poll_until(lambda: a.has == of(first, 2) | of(second, 1), a)


def test_an_expression_that_is_none_is_an_error(broker: BrokerProcess, group: str) -> None:
    """The consumer says so; RE2 does not know a group that is named again."""
    with members(broker, group, 1, r"^(a)\1") as (a,):
        poll_until(lambda: bool(a.errors), a)
        assert "expression" in str(a.errors[0]).lower()


def test_a_static_member_comes_back_to_its_partitions(broker: BrokerProcess, topic: str, group: str) -> None:
    """The other one is not asked for anything meanwhile."""
    with members(broker, group, 1, topic, group_instance_id="one") as (a,):
        b = Member(broker, group, topic, group_instance_id="two")
        poll_until(lambda: share(topic, a, b), a, b)
        had, events = b.has, list(a.events)
        b.close()
        again = Member(broker, group, topic, group_instance_id="two")
        try:
            poll_until(lambda: bool(again.has), a, again)
            assert (again.has, a.events) == (had, events)
        finally:
            again.close()


def test_a_topic_that_gets_partitions_is_assigned_anew(
    broker: BrokerProcess, admin: Any, topic: str, group: str
) -> None:
    """Without anybody giving something back."""
    with members(broker, group, 1, topic) as (a,):
        poll_until(lambda: a.has == of(topic), a)
        admin.create_partitions([api.NewPartitions(topic, PARTITIONS + 2)])[topic].result(DEADLINE_S)
        poll_until(lambda: a.has == of(topic, PARTITIONS + 2), a)
        assert a.events == ["got 4", "got 2"]


def test_administrators_see_the_group(broker: BrokerProcess, admin: Any, topic: str, group: str) -> None:
    """Its type, its state, its members and what they have; it can be deleted when they are gone."""
    with members(broker, group, 1, topic, client_id="me") as (a,):
        poll_until(lambda: a.has == of(topic), a)
        listed = admin.list_consumer_groups(request_timeout=DEADLINE_S).result().valid
        (mine,) = [each for each in listed if each.group_id == group]
        assert (mine.type, mine.state) == (ConsumerGroupType.CONSUMER, ConsumerGroupState.STABLE)
        described = admin.describe_consumer_groups([group], request_timeout=DEADLINE_S)[group].result()
        assert (described.state, described.partition_assignor) == (ConsumerGroupState.STABLE, "uniform")
        (member,) = described.members
        assert member.client_id == "me"
        assert {(each.topic, each.partition) for each in member.assignment.topic_partitions} == of(topic)
        with pytest.raises(KafkaException) as refused:
            admin.delete_consumer_groups([group], request_timeout=DEADLINE_S)[group].result()
        assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    admin.delete_consumer_groups([group], request_timeout=DEADLINE_S)[group].result()
    listed = admin.list_consumer_groups(request_timeout=DEADLINE_S).result().valid
    assert group not in [each.group_id for each in listed]


def test_a_group_is_of_one_kind_at_a_time(broker: BrokerProcess, topic: str, group: str) -> None:
    """Who comes with the other protocol is refused while there are members; offsets survive the change."""
    produce(broker, topic, 0, 40)
    with members(broker, group, 1, topic) as (a,):
        poll_until(lambda: len(a.values) == 40, a)
        with members(broker, group, 1, topic, group_protocol="classic") as (b,):
            poll_until(lambda: bool(b.errors), a, b)
            assert b.errors[0].code() == KafkaError.INCONSISTENT_GROUP_PROTOCOL
    with members(broker, group, 1, topic, group_protocol="classic") as (b,):
        poll_until(lambda: b.has == of(topic), b)
        with members(broker, group, 1, topic) as (a,):
            poll_until(lambda: bool(a.errors), a, b)
    produce(broker, topic, 40, 40)
    with members(broker, group, 1, topic) as (a,):
        poll_until(lambda: len(a.values) == 40, a)
    assert sorted(a.values) == list(range(40, 80))
    assert b.values == []


def test_members_go_on_when_their_coordinator_restarts(broker: BrokerProcess, topic: str, group: str) -> None:
    """They have what they had, without giving anything back, and commits are there."""
    produce(broker, topic, 0, 40)
    with members(broker, group, 2, topic) as (a, b):
        poll_until(lambda: share(topic, a, b) and len(a.values + b.values) >= 40, a, b)
        for member in (a, b):
            member.consumer.commit(asynchronous=False)
        events = (list(a.events), list(b.events))
        broker.restart()
        produce(broker, topic, 40, 40)
        poll_until(lambda: len(a.values + b.values) >= 80, a, b)
        assert (a.events, b.events) == events
        committed = a.consumer.committed([TopicPartition(topic, 0)], timeout=DEADLINE_S)
        assert committed[0].offset >= 10


def test_kafkas_own_consumer_and_tools_know_the_protocol(
    run_tool: RunTool, broker: BrokerProcess, topic: str, group: str
) -> None:
    """Java's consumer, in its version 0; the command that describes groups; the tool that reads what we store."""
    produce(broker, topic, 0, 40)
    at = ("--bootstrap-server", broker.bootstrap)
    consumed = run_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *(*at, "--topic", topic, "--group", group, "--from-beginning", "--max-messages", "40"),
        *("--timeout-ms", str(TOOL_SECONDS_MAX * 1000), "--consumer-property", "group.protocol=consumer"),
    )
    assert sorted(map(int, consumed.split())) == list(range(40))

    groups = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    patiently = (*at, "--timeout", str(TOOL_SECONDS_MAX * 1000))
    with members(broker, group, 1, topic, client_id="me") as (a,):
        poll_until(lambda: a.has == of(topic), a)
        shown = run_tool(groups, *patiently, "--describe", "--group", group)
        assert len(re.findall(rf"^{group} +{topic} +\d +10 +10 +0 .* me *$", shown, re.MULTILINE)) == PARTITIONS
        assert re.search(
            rf"^{group} .* uniform +Stable +1",
            run_tool(groups, *patiently, "--describe", "--all-groups", "--state"),
            re.MULTILINE,
        )

    # The end of a file in use is reserved, and not yet written.
    assert broker.stop() == 0
    try:
        files = ",".join(str(log) for log in broker.log_dir.glob("__consumer_offsets-*/*.log"))
        dumped = run_tool("kafka.tools.DumpLogSegments", "--files", files, "--offsets-decoder")
    finally:
        broker.start()
    told = {
        kind
        for kind, told in re.findall(r'key: \{"type":"(\d+)","data":\{"groupId":"([^"]+)"', dumped)
        if told == group
    }
    assert told == {"3", "4", "5", "6", "7", "8"}
