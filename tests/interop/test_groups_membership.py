"""Who is in a group, with the clients that people use: joining, leaving, dying, coming back, alone and mixed."""

from __future__ import annotations

import os
import signal
import sys
import uuid
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.interop.clients.confluent import Confluent
from tests.interop.clients.record import Sent
from tests.interop.conftest import CreateTopic
from tests.interop.members.all import LIBRARIES, member
from tests.interop.members.member import Joining, Member, share, watch_until
from tests.interop.members.python import PythonMember
from tests.interop.raw import RawConnection, retrying
from tests.kit.broker_process import BrokerProcess
from tests.kit.guarded_process import GuardedProcess
from tests.kit.waiting import until

from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.sync_group import SyncGroupRequest

# Each group of clients, by what its members are; the first of a group comes first and the last comes and goes.
COMPANIES = {
    **{name: (name, name) for name in LIBRARIES},
    "mixed": ("confluent-kafka", "aiokafka", "kafka-python", "ottla"),
    "mixed-the-other-way": ("ottla", "kafka-python", "aiokafka", "confluent-kafka"),
}
# The least that the broker allows.
SESSION_TIMEOUT_MS = 6_000
JOIN_VERSION = 5
ROOT = Path(__file__).parents[2]


@pytest.fixture
def group() -> str:
    """A name that no other group has."""
    return f"group-{uuid.uuid4().hex}"


def partitions_of(topic: str, count: int) -> list[TopicPartition]:
    """Return all partitions of a topic."""
    return [TopicPartition(topic, number) for number in range(count)]


def produce(broker: BrokerProcess, topic: str, partitions: int, *values: bytes) -> None:
    """Send the values to each of the partitions."""
    for number in range(partitions):
        records = [Sent(b"%s in %d" % (value, number)) for value in values]
        Confluent().produce(broker.bootstrap, topic, records, partition=number)


@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
@pytest.mark.parametrize("company", COMPANIES)
def test_members_that_come_and_go_share_the_partitions(
    company: str, assignor: str, broker: BrokerProcess, create_topic: CreateTopic, group: str
) -> None:
    """Whoever is there has a part of them, nobody has what another has, and every record reaches somebody."""
    topic = create_topic(partitions=6)
    everything = partitions_of(topic, 6)
    how = Joining(group, (topic,), assignor=assignor)
    with ExitStack() as stack:
        stayed = [stack.enter_context(member(name, broker.bootstrap, how)) for name in COMPANIES[company][:-1]]
        watch_until(lambda: share(stayed, everything), *stayed)

        with member(COMPANIES[company][-1], broker.bootstrap, how) as guest:
            members = [*stayed, guest]
            watch_until(lambda: share(members, everything), *members)
            produce(broker, topic, 6, b"first")
            watch_until(lambda: sum(len(one.values) for one in members) >= 6, *members)
            assert sorted(value for one in members for value in one.values) == [b"first in %d" % n for n in range(6)]
            assert all({got.partition for got in one.got} <= one.assignment for one in members)
        watch_until(lambda: share(stayed, everything), *stayed)

        with member(COMPANIES[company][-1], broker.bootstrap, how) as again:
            watch_until(lambda: share([*stayed, again], everything), *stayed, again)


class HastyMember(PythonMember):
    """A kafka-python whose polls are often over before it has joined, as on a machine with much other work."""

    poll_ms_min = poll_ms_max = 30


def test_a_member_whose_poll_ends_while_it_joins_stays_in_the_group(
    broker: BrokerProcess, create_topic: CreateTopic, group: str
) -> None:
    """It goes on to send heartbeats, so it hears of the next member and gives it its share."""
    everything = partitions_of(topic := create_topic(partitions=6), 6)
    how = Joining(group, (topic,), session_timeout_ms=SESSION_TIMEOUT_MS)
    with HastyMember(broker.bootstrap, how) as first:
        watch_until(lambda: share([first], everything), first)

        with HastyMember(broker.bootstrap, how) as second:
            watch_until(lambda: share([first, second], everything), first, second)


def test_the_partitions_of_members_that_are_killed_go_to_the_others(
    broker: BrokerProcess, create_topic: CreateTopic, group: str, tmp_path: Path
) -> None:
    """A member of each library dies without a word; when its session is over, who is left reads its partitions."""
    count = len(LIBRARIES) + 1
    topic = create_topic(partitions=count)
    everything = partitions_of(topic, count)
    how = Joining(group, (topic,), session_timeout_ms=SESSION_TIMEOUT_MS)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    arguments = (broker.bootstrap, group, topic, str(SESSION_TIMEOUT_MS))
    command = (sys.executable, "-m", "tests.interop.members")
    with member("confluent-kafka", broker.bootstrap, how) as survivor:
        watch_until(lambda: share([survivor], everything), survivor)
        doomed = [
            GuardedProcess([*command, name, *arguments], tmp_path / f"{name}.log", environment) for name in LIBRARIES
        ]
        try:
            watch_until(lambda: len(survivor.partitions) == 1, survivor)
            for process in doomed:
                assert process.poll() is None
        finally:
            for process in doomed:
                process.end(signal.SIGKILL)
        watch_until(lambda: share([survivor], everything), survivor)
        produce(broker, topic, count, b"after")
        watch_until(lambda: len(survivor.values) == count, survivor)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_static_member_that_restarts_disturbs_nobody(
    library: str, broker: BrokerProcess, create_topic: CreateTopic, group: str
) -> None:
    """It gets what it had; the other member keeps its partitions in the same generation, and loses none meanwhile."""
    topic = create_topic(partitions=4)
    everything = partitions_of(topic, 4)
    stable = Joining(group, (topic,), instance_id="one")
    moving = Joining(group, (topic,), instance_id="two")
    with member("kafka-python", broker.bootstrap, stable) as witness:
        with member(library, broker.bootstrap, moving) as first:
            watch_until(lambda: share([witness, first], everything), witness, first)
            had, kept = first.assignment, witness.assignment
            generation = witness.generation()
            revocations = len(witness.revoked)
        with member(library, broker.bootstrap, moving) as second:
            watch_until(lambda: second.assignment == had, witness, second)
            produce(broker, topic, 4, b"value")
            watch_until(lambda: len(second.values) == len(had) and len(witness.values) == len(kept), witness, second)
            assert witness.assignment == kept
            assert witness.generation() == generation
            assert len(witness.revoked) == revocations


@pytest.mark.parametrize("library", ["confluent-kafka", "kafka-python", "ottla"])
def test_cooperative_members_keep_what_they_need_not_give(
    library: str, broker: BrokerProcess, create_topic: CreateTopic, group: str
) -> None:
    """When a third member comes, only what it gets is taken from the others; when it goes, nothing is."""
    topic = create_topic(partitions=6)
    everything = partitions_of(topic, 6)
    how = Joining(group, (topic,), assignor="cooperative-sticky")
    with member(library, broker.bootstrap, how) as one, member(library, broker.bootstrap, how) as two:
        pair = (one, two)
        watch_until(lambda: share(pair, everything) and len(one.partitions) == 3, *pair)
        had = {each: (each.assignment, len(each.revoked)) for each in pair}
        with member(library, broker.bootstrap, how) as third:
            watch_until(lambda: share([*pair, third], everything) and len(third.partitions) == 2, *pair, third)
            for each in pair:
                before, revocations = had[each]
                assert each.assignment < before
                taken = frozenset().union(*each.revoked[revocations:])
                assert taken == before - each.assignment
        revocations_then = [len(each.revoked) for each in pair]
        watch_until(lambda: share(pair, everything), *pair)
        assert [len(each.revoked) for each in pair] == revocations_then


# kafka-python 3.0.12 loses its assignment where a poll ends while it joins again because of new metadata, as the Java
# client did until KAFKA-9815. With Apache Kafka 3.9.1, and polls as short as a join, it did in 17 of 60 runs.
@pytest.mark.parametrize("library", [name for name in LIBRARIES if name != "kafka-python"])
def test_a_pattern_finds_topics_that_are_made_later(library: str, broker: BrokerProcess, group: str) -> None:
    """A topic whose name matches is read as soon as the member hears of it, from its beginning."""
    prefix = f"pattern-{uuid.uuid4().hex}"
    with RawConnection(broker.bootstrap) as connection:
        retrying(lambda: connection.create_topic(f"{prefix}-a"))
        produce(broker, f"{prefix}-a", 1, b"first")
        with member(library, broker.bootstrap, Joining(group, pattern=f"{prefix}-.*")) as reader:
            watch_until(lambda: reader.values == [b"first in 0"], reader)
            connection.create_topic(f"{prefix}-b")
            connection.create_topic(f"other-{prefix}")
            produce(broker, f"{prefix}-b", 1, b"second")
            watch_until(lambda: reader.values == [b"first in 0", b"second in 0"], reader)
            assert {partition.topic for partition in reader.assignment} == {f"{prefix}-a", f"{prefix}-b"}


def test_twenty_members_of_four_libraries_share_sixty_partitions(
    broker: BrokerProcess, create_topic: CreateTopic, group: str
) -> None:
    """Three for each, and each record reaches one of them."""
    topic = create_topic(partitions=60)
    names = [name for name, count in zip(LIBRARIES, (5, 5, 5, 5), strict=True) for _ in range(count)]
    with ExitStack() as stack:
        members: list[Member] = [
            stack.enter_context(member(name, broker.bootstrap, Joining(group, (topic,)))) for name in names
        ]
        watch_until(
            lambda: share(members, partitions_of(topic, 60)) and all(len(one.partitions) == 3 for one in members),
            *members,
        )
        records = [Sent(b"%d" % number) for number in range(10)]
        for number in range(0, 60, 6):
            Confluent().produce(broker.bootstrap, topic, records, partition=number)
        watch_until(lambda: sum(len(one.values) for one in members) == 100, *members)


def test_joins_that_one_member_sends_without_waiting_are_all_answered_well(broker: BrokerProcess, group: str) -> None:
    """As kafkajs does: the next join begins when the one before it is answered, and does not push its member out."""
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"\0" * 10)]

    def joining(member_id: str) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=group,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=60_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=protocols,
        )

    def new_member(connection: RawConnection) -> str:
        """Ask until the coordinator is there; it gives an id to a member that has none."""
        known: list[str] = []

        def ask() -> bool:
            answer = connection.request(Api.JOIN_GROUP, JOIN_VERSION, joining(""))
            known.append(answer.member_id)
            return bool(answer.error_code == ErrorCode.MEMBER_ID_REQUIRED)

        until(ask, "the coordinator gives an id")
        return known[-1]

    with RawConnection(broker.bootstrap) as first, RawConnection(broker.bootstrap) as second:
        first.request(Api.FIND_COORDINATOR, 2, FindCoordinatorRequest(key=group, key_type=0))
        resident = new_member(first)
        assert first.request(Api.JOIN_GROUP, JOIN_VERSION, joining(resident)).error_code == 0
        first.request(
            Api.SYNC_GROUP, 3, SyncGroupRequest(group_id=group, generation_id=1, member_id=resident, assignments=[])
        )
        impatient = new_member(second)
        second.send_together(Api.JOIN_GROUP, JOIN_VERSION, [joining(impatient)] * 3)
        # The resident hears of the rebalance, and joins again: only then can the others be answered.
        beat = HeartbeatRequest(group_id=group, generation_id=1, member_id=resident)
        until(
            lambda: first.request(Api.HEARTBEAT, 3, beat).error_code == ErrorCode.REBALANCE_IN_PROGRESS,
            "the rebalance",
        )
        assert first.request(Api.JOIN_GROUP, JOIN_VERSION, joining(resident)).error_code == 0
        answers = [second.receive(Api.JOIN_GROUP, JOIN_VERSION)[1] for _ in range(3)]

    assert [(answer.error_code, answer.member_id) for answer in answers] == [(0, impatient)] * 3
