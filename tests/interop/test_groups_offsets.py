"""What a group has read, with the clients that people use: committed by hand and by itself, and found again."""

from __future__ import annotations

import uuid

import confluent_kafka
import pytest
from tests.interop.clients import aio, confluent, python
from tests.interop.clients.confluent import Confluent
from tests.interop.clients.record import Sent
from tests.interop.conftest import CreateTopic
from tests.interop.members.all import LIBRARIES, member
from tests.interop.members.member import Commit, Joining, watch_until
from tests.kit.broker_process import BrokerProcess

from ottla.protocol.identifiers import TopicPartition

COUNT = 10


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


def values(start: int, stop: int = COUNT) -> list[bytes]:
    """Return what `filled` has from an offset on."""
    return [b"%d" % number for number in range(start, stop)]


@pytest.mark.parametrize("library", LIBRARIES)
def test_what_is_committed_by_hand_is_read_by_all_with_its_metadata(
    library: str, broker: BrokerProcess, filled: TopicPartition, group: str
) -> None:
    """Each library sees the offset and the words that this one committed, and goes on there."""
    how = Joining(group, (filled.topic,))
    with member(library, broker.bootstrap, how) as reader:
        watch_until(lambda: reader.values == values(0), reader)
        assert reader.committed(filled) is None
        reader.commit({filled: Commit(4, "half-way: ½")})
        assert reader.committed(filled) == Commit(4, "half-way: ½")
    for other in LIBRARIES:
        with member(other, broker.bootstrap, how) as reader:
            watch_until(lambda reader=reader: reader.values == values(4), reader)  # type: ignore[misc]
            assert reader.committed(filled) == Commit(4, "half-way: ½")


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_member_that_commits_by_itself_does_so_now_and_then_and_when_it_leaves(
    library: str, broker: BrokerProcess, filled: TopicPartition, group: str
) -> None:
    """While it lives another client sees the commit; what it read last is committed when it closes."""
    often = Joining(group, (filled.topic,), auto_commit_interval_ms=100)
    with member(library, broker.bootstrap, often) as reader:
        watch_until(lambda: reader.values == values(0), reader)
        watch_until(lambda: reader.committed(filled) == Commit(COUNT), reader)
    rarely = Joining(group, (filled.topic,), auto_commit_interval_ms=600_000)
    with member(library, broker.bootstrap, rarely) as reader:
        watch_until(lambda: reader.assignment == {filled}, reader)
        Confluent().produce(broker.bootstrap, filled.topic, [Sent(b"last")])
        watch_until(lambda: reader.values == [b"last"], reader)
    with member("kafka-python", broker.bootstrap, Joining(group, (filled.topic,))) as reader:
        watch_until(lambda: reader.assignment == {filled}, reader)
        assert reader.committed(filled) == Commit(COUNT + 1)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_group_without_offsets_starts_where_it_is_told_to(
    library: str, broker: BrokerProcess, filled: TopicPartition, group: str
) -> None:
    """`earliest` reads everything; `latest` what comes after it has looked for the end."""
    with member(library, broker.bootstrap, Joining(f"{group}-earliest", (filled.topic,))) as reader:
        watch_until(lambda: reader.values == values(0), reader)
    with member(library, broker.bootstrap, Joining(f"{group}-latest", (filled.topic,), reset="latest")) as reader:
        watch_until(lambda: reader.assignment == {filled}, reader)
        sent = 0
        while not reader.got:
            Confluent().produce(broker.bootstrap, filled.topic, [Sent(b"new %d" % sent)])
            sent += 1
        assert reader.got[0].offset >= COUNT


def test_two_groups_read_one_topic_each_for_itself(broker: BrokerProcess, filled: TopicPartition, group: str) -> None:
    """What one commits the other does not see; both get everything."""
    topic = filled.topic
    with (
        member("confluent-kafka", broker.bootstrap, Joining(f"{group}-1", (topic,))) as one,
        member("aiokafka", broker.bootstrap, Joining(f"{group}-2", (topic,))) as other,
    ):
        watch_until(lambda: one.values == values(0) == other.values, one, other)
        one.commit({filled: Commit(7)})
        other.commit({filled: Commit(2)})
        assert (one.committed(filled), other.committed(filled)) == (Commit(7), Commit(2))
    with member("kafka-python", broker.bootstrap, Joining(f"{group}-1", (topic,))) as one:
        watch_until(lambda: one.values == values(7), one)
    with member("kafka-python", broker.bootstrap, Joining(f"{group}-2", (topic,))) as other:
        watch_until(lambda: other.values == values(2), other)


async def test_consumers_that_choose_their_partitions_commit_without_joining(
    broker: BrokerProcess, filled: TopicPartition, group: str
) -> None:
    """With `assign` there are no members; each library commits, and reads what the one before it committed."""
    with confluent.consumer(broker.bootstrap, group_id=group) as client:
        client.assign([confluent_kafka.TopicPartition(*filled, 0)])
        wanted = confluent_kafka.TopicPartition(*filled, 3, metadata="by hand")
        (committed,) = client.commit(offsets=[wanted], asynchronous=False)
        assert committed.error is None

    with python.consumer(broker.bootstrap, group_id=group, enable_auto_commit=False) as client:
        partition = python.TopicPartition(*filled)
        client.assign([partition])
        found = client.committed(partition, metadata=True)
        assert Commit.of(found.offset, found.metadata) == Commit(3, "by hand")
        assert [record.value for record in python.receive(client, COUNT - 3)] == values(3)
        client.commit()

    async with aio.consumer(broker.bootstrap, group_id=group, enable_auto_commit=False) as client:
        client.assign([aio.TopicPartition(*filled)])
        assert await client.committed(aio.TopicPartition(*filled)) == COUNT
        await client.commit({aio.TopicPartition(*filled): 5})

    with confluent.consumer(broker.bootstrap, group_id=group) as client:
        (position,) = client.committed([confluent_kafka.TopicPartition(*filled)], 30)
        assert position.offset == 5
