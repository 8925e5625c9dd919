"""The table of partitions: roles come and go, and logs that cannot be used are set aside."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker.replication.recorded_waits import Waiting
from tests.broker.replication.replicas import NOW_MS, ORDERS, TOPIC_ID, batch, role

from ottla.broker.config import BrokerConfig, TopicConfig
from ottla.broker.replication.partition import Partition, PartitionContext, PartitionRole
from ottla.broker.replication.partitions import Partitions
from ottla.broker.storage.directory_files import MetaProperties
from ottla.broker.storage.logs import Logs
from ottla.broker.storage.recovery.startup import open_logs
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import NO_LEADER, TopicPartition

OTHER_TOPIC_ID = bytes(range(1, 17))
VIEWS = TopicPartition("views", 0)


class FakeFetchers:
    """Notes who is followed."""

    def __init__(self) -> None:
        self.leaders: dict[TopicPartition, int] = {}

    def add(self, partition: Partition, leader_id: int) -> None:
        """Follow a leader."""
        self.leaders[partition.partition] = leader_id

    def remove(self, partition: TopicPartition) -> None:
        """Follow nobody."""
        self.leaders.pop(partition, None)


class Broker:
    """Broker 1 with its partitions."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.options_read: list[str] = []
        config = BrokerConfig.of({"log.dirs": str(directory)})
        topic = TopicConfig(config, {})
        logs = open_logs(Logs(config, lambda _: topic, lambda: NOW_MS), MetaProperties(1, "a-cluster"))
        # What the metadata of the cluster has.
        self.known = {ORDERS, VIEWS}
        context = PartitionContext(1, lambda: NOW_MS, exists=lambda partition: partition in self.known)
        self.partitions = Partitions(context, logs, self.options_read.append)
        self.fetchers = FakeFetchers()
        self.partitions.fetchers = self.fetchers  # type: ignore[assignment]

    def take(
        self,
        given: PartitionRole,
        partition: TopicPartition = ORDERS,
        topic_id: bytes = TOPIC_ID,
        *,
        is_new: bool = True,
    ) -> Partition:
        """Take a role."""
        return self.partitions.take_role(partition, topic_id, given, is_new=is_new)

    @property
    def directories(self) -> list[str]:
        """How the directories of partitions end: with nothing, or with why they are set aside."""
        names = (path.name for path in self.directory.iterdir() if path.is_dir())
        return sorted(name.rpartition("-")[2] if "." in name else name for name in names)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker that has no partitions yet."""
    broker = Broker(tmp_path)
    yield broker
    for log_dir in broker.partitions.logs.dirs:
        log_dir.release()


# Roles


def test_the_first_role_creates_the_log(broker: Broker) -> None:
    """With the options that the topic has by now."""
    partition = broker.take(role(1))

    assert broker.partitions.get(ORDERS) is partition
    assert (broker.directories, broker.options_read) == (["orders-0"], ["orders"])


def test_a_follower_is_fetched_for_until_it_leads(broker: Broker) -> None:
    """From the leader that the newest role names."""
    broker.take(role(2, epoch=0))
    assert broker.fetchers.leaders == {ORDERS: 2}

    broker.take(role(3, epoch=1))
    assert broker.fetchers.leaders == {ORDERS: 3}

    broker.take(role(1, epoch=2))
    assert broker.fetchers.leaders == {}


def test_nobody_is_followed_without_a_leader(broker: Broker) -> None:
    """Until one is elected."""
    broker.take(role(2, epoch=0))
    broker.take(role(NO_LEADER, epoch=1))

    assert broker.fetchers.leaders == {}


def test_an_old_role_changes_nothing(broker: Broker) -> None:
    """The fetcher goes on as it was."""
    broker.take(role(3, epoch=1))
    broker.take(role(2, epoch=0))

    assert broker.fetchers.leaders == {ORDERS: 3}


def test_a_new_role_wakes_those_that_wait(broker: Broker) -> None:
    """Fetches and produces look at the partition again; those that wait for another do not."""
    partitions = broker.partitions
    fetch, produce, other = Waiting(), Waiting(), Waiting()
    partitions.waits.fetches.watch(fetch, [ORDERS], 60_000)
    partitions.waits.produces.watch(produce, [ORDERS], 60_000)
    partitions.waits.produces.watch(other, [VIEWS], 60_000)
    before = [fetch.asked, produce.asked, other.asked]
    broker.take(role(2))

    assert [fetch.asked - before[0], produce.asked - before[1], other.asked - before[2]] == [1, 1, 0]


def test_an_unknown_partition_is_not_here(broker: Broker) -> None:
    """Clients look elsewhere."""
    assert broker.partitions.find(ORDERS) is None
    with pytest.raises(KafkaError) as raised:
        broker.partitions.get(ORDERS)
    assert raised.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_partition_that_the_cluster_lacks_is_unknown(broker: Broker) -> None:
    """Clients need not look elsewhere."""
    broker.known.clear()
    with pytest.raises(KafkaError) as raised:
        broker.partitions.get(ORDERS)
    assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# Dropping


@pytest.mark.parametrize("delete", [False, True])
def test_a_dropped_partition_is_served_no_more(broker: Broker, delete: bool) -> None:
    """Whoever still holds it learns that nobody leads here; its files go only where they are to be deleted."""
    partition = broker.take(role(2))
    broker.partitions.drop(ORDERS, delete=delete)

    assert broker.partitions.find(ORDERS) is None
    assert (partition.role.leader_id, broker.fetchers.leaders) == (NO_LEADER, {})
    assert broker.directories == (["delete"] if delete else ["orders-0"])


def test_dropping_what_is_not_there_is_nothing(broker: Broker) -> None:
    """StopReplica may come twice."""
    broker.partitions.drop(ORDERS, delete=True)

    assert len(broker.partitions) == 0


# Logs that cannot be used


def broken(broker: Broker) -> None:
    """Let the log of a leader with one record turn out to be damaged."""
    partition = broker.take(role(1, isr=(1,)))
    partition.append(batch(), required_acks=1)
    broker.partitions.logs.mark_broken(ORDERS, "a CRC is wrong")


def test_a_follower_sets_a_damaged_log_aside_and_begins_anew(broker: Broker) -> None:
    """The leader has another copy; what is left of ours stays for an operator."""
    broken(broker)
    partition = broker.take(role(2, epoch=1), is_new=False)

    assert (partition.log.log_end_offset, broker.fetchers.leaders) == (0, {ORDERS: 2})
    assert broker.directories == ["orders-0", "stray"]


def test_a_damaged_log_is_not_led(broker: Broker) -> None:
    """It may be the only copy: nothing is made anew in its place."""
    broken(broker)
    with pytest.raises(KafkaError) as raised:
        broker.take(role(1, epoch=1), is_new=False)

    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.directories == ["orders-0"]


def test_the_log_of_an_earlier_topic_of_that_name_is_set_aside(broker: Broker) -> None:
    """It was deleted and created anew while this broker was away."""
    first = broker.take(role(1, isr=(1,)))
    first.append(batch(), required_acks=1)
    broker.partitions.drop(ORDERS, delete=False)
    second = broker.take(role(1), topic_id=OTHER_TOPIC_ID)

    assert (second.topic_id, second.log.log_end_offset) == (OTHER_TOPIC_ID, 0)
    assert broker.directories == ["orders-0", "stray"]


# The session


def test_with_the_session_leadership_ends(broker: Broker) -> None:
    """Others are elected; followers go on."""
    led, followed = broker.take(role(1)), broker.take(role(2), VIEWS)
    broker.partitions.session_expired()

    assert (led.role.leader_id, followed.role.leader_id) == (NO_LEADER, 2)
    assert broker.fetchers.leaders == {VIEWS: 2}


def test_the_session_may_end_without_a_controller_that_notices(broker: Broker) -> None:
    """The same role again makes it the leader again."""
    led = broker.take(role(1))
    broker.partitions.session_expired()
    broker.take(role(1))

    assert led.is_leader
