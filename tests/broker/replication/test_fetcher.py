"""Fetchers over real logs, against a leader on a loopback port."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.replication.fake_leader import VERSIONS, FakeLeader, LeaderLog, batch, topic_id
from tests.broker.replication.peer import Peer, peer

from ottla.broker.config import BrokerConfig, TopicConfig
from ottla.broker.replication.fetchers import Fetchers, fetcher_number
from ottla.broker.replication.follower import Step, take_fetched
from ottla.broker.replication.leadership import PartitionRole
from ottla.broker.replication.partition import Partition, PartitionContext
from ottla.broker.storage.directory_files import MetaProperties
from ottla.broker.storage.startup import close_logs, open_logs
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.message import Versions
from ottla.protocol.messages.fetch import EpochEndOffset
from ottla.protocol.primitives import UUID_ZERO

LEADER, FOLLOWER = 1, 2
TIMEOUT_S = 30
BROKER_EPOCH = 77


class FollowingBroker:
    """A broker that only follows; its leaders are found through `endpoints`."""

    def __init__(self, directory: Path, options: dict[str, str]) -> None:
        self.config = BrokerConfig.of(
            {
                "log.dirs": str(directory),
                "replica.fetch.backoff.ms": "50",
                "replica.fetch.wait.max.ms": "20000",
                **options,
            }
        )
        default = TopicConfig(self.config, {})
        owner = MetaProperties(FOLLOWER, "c" * 22)
        self.logs = open_logs(self.config, owner, lambda topic: default, lambda: 5000)
        self.endpoints: dict[int, tuple[str, int]] = {}
        self.changed = threading.Condition()
        self.moves: list[TopicPartition] = []
        self.fetchers = Fetchers(
            lambda: self.config, FOLLOWER, lambda: BROKER_EPOCH, self.endpoints.get, self.logs, self._moved
        )
        self.fetchers.start()

    def _moved(self, partition: TopicPartition) -> None:
        with self.changed:
            self.moves.append(partition)
            self.changed.notify_all()

    def partition(self, topic: str, index: int = 0, *, identifier: bytes | None = None) -> Partition:
        """Make a replica of a partition, without a role."""
        name = TopicPartition(topic, index)
        identifier = topic_id(topic) if identifier is None else identifier
        log = self.logs.create(name, identifier, is_new=True)
        return Partition(name, identifier, log, PartitionContext(FOLLOWER, lambda: 5000))

    def follow(self, partition: Partition, epoch: int = 0, leader: int = LEADER) -> Partition:
        """Become follower, as the controller says."""
        replicas = (leader, FOLLOWER)
        partition.take_role(PartitionRole(leader, epoch, epoch, replicas, frozenset(replicas)))
        self.fetchers.add(partition, leader)
        return partition

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until partitions have moved so far; a test fails where they never do."""
        with self.changed:
            assert self.changed.wait_for(condition, TIMEOUT_S), "it never came to that"

    def close(self) -> None:
        """End the fetchers and close the logs."""
        self.fetchers.stop()
        close_logs(self.logs, BROKER_EPOCH)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[FollowingBroker]:
    """A broker that follows."""
    made = FollowingBroker(tmp_path, {})
    yield made
    made.close()


@pytest.fixture
def leader() -> FakeLeader:
    """A leader with a few logs."""
    made = FakeLeader()
    for topic in ("orders", "payments", "visits"):
        made.logs[topic, 0] = LeaderLog()
    return made


@pytest.fixture
def port(leader: FakeLeader, broker: FollowingBroker) -> Iterator[Peer]:
    """The leader's port, which the follower knows."""
    with peer(leader.answer, VERSIONS) as listening:
        broker.endpoints[LEADER] = listening.endpoint
        yield listening
        broker.fetchers.stop()


def contents(partition: Partition) -> bytes:
    """All bytes of a log."""
    read = partition.log.read(partition.log.log_start_offset, 1_000_000)
    return b"" if read is None else read.read()


def test_a_follower_copies_what_its_leader_has_and_gets(
    broker: FollowingBroker, leader: FakeLeader, port: Peer
) -> None:
    """Byte for byte; and its high watermark follows."""
    leader.append("orders", [b"a", b"b"])
    orders = broker.follow(broker.partition("orders"))
    broker.wait_for(lambda: orders.log.log_end_offset == 2)
    leader.append("orders", [b"c"], commit=False)
    broker.wait_for(lambda: orders.log.log_end_offset == 3)
    with leader.changed:
        leader.logs["orders", 0].high_watermark = 3
        leader.changed.notify_all()
    broker.wait_for(lambda: orders.log.high_watermark == 3)
    assert contents(orders) == b"".join(data for _, data in leader.logs["orders", 0].batches)
    assert broker.fetchers.lags() == {orders.partition: 0}
    assert port.connected == 1


def test_fetches_say_who_asks_and_for_how_much(broker: FollowingBroker, leader: FakeLeader, port: Peer) -> None:
    """In the newest version, with broker epoch, limits and topic id."""
    broker.follow(broker.partition("orders"), epoch=4)
    leader.wait_for(lambda: leader.requests)
    api, version, request = leader.requests[0]
    assert (api, version) == (Api.FETCH, 17)
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (FOLLOWER, BROKER_EPOCH)
    assert (request.min_bytes, request.max_bytes) == (1, 10 * 1024 * 1024)
    (topic,) = request.topics
    (row,) = topic.partitions
    assert topic.topic_id == topic_id("orders")
    assert (row.current_leader_epoch, row.fetch_offset, row.last_fetched_epoch) == (4, 0, -1)
    assert (row.log_start_offset, row.partition_max_bytes) == (0, 1024 * 1024)


def test_a_fetch_names_only_the_partitions_that_moved(broker: FollowingBroker, leader: FakeLeader, port: Peer) -> None:
    """Though the leader keeps fetching all of them."""
    orders = broker.follow(broker.partition("orders"))
    broker.follow(broker.partition("payments"))
    leader.wait_for(lambda: len(leader.fetches()) > 2 and not leader.fetches()[-1].topics)
    before = len(leader.fetches())
    leader.append("orders", [b"a"])
    leader.wait_for(lambda: any(fetch.topics for fetch in leader.fetches()[before:]))
    (named,) = [fetch.topics for fetch in leader.fetches()[before:] if fetch.topics]
    assert [(topic.topic_id, [row.fetch_offset for row in topic.partitions]) for topic in named] == [
        (topic_id("orders"), [1])
    ]
    assert orders.log.log_end_offset == 1


def test_an_added_partition_does_not_wait_for_the_fetch_under_way(
    broker: FollowingBroker, leader: FakeLeader, port: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if that one would wait for many seconds."""
    monkeypatch.setattr("ottla.broker.replication.fetcher._SETTLING_SECONDS", 0.0)
    broker.follow(broker.partition("orders"))
    leader.wait_for(lambda: leader.waiting and leader.fetches()[-1].max_wait_ms == 20_000)
    leader.append("payments", [b"a"])
    began = time.monotonic()
    payments = broker.follow(broker.partition("payments"))
    broker.wait_for(lambda: payments.log.log_end_offset == 1)
    assert time.monotonic() - began < 10


def test_additions_in_a_burst_break_no_further_fetch(broker: FollowingBroker, leader: FakeLeader, port: Peer) -> None:
    """Those behind the first one find fetches that wait shortly."""
    partitions = [broker.partition("visits", index) for index in range(8)]
    for index in range(8):
        leader.logs["visits", index] = LeaderLog()
        leader.append("visits", [b"a"], index)
    for partition in partitions:
        broker.follow(partition)
        broker.wait_for(lambda: partition.log.log_end_offset == 1)  # noqa: B023
    assert port.connected == 1


def test_a_removed_partition_is_left_alone(broker: FollowingBroker, leader: FakeLeader, port: Peer) -> None:
    """And forgotten by the session; the others go on."""
    orders = broker.follow(broker.partition("orders"))
    payments = broker.follow(broker.partition("payments"))
    leader.append("orders", [b"a"])
    broker.wait_for(lambda: orders.log.log_end_offset == 1)
    broker.fetchers.remove(orders.partition)
    leader.append("orders", [b"b"])
    leader.append("payments", [b"c"])
    broker.wait_for(lambda: payments.log.log_end_offset == 1)
    leader.wait_for(lambda: any(fetch.forgotten_topics_data for fetch in leader.fetches()))
    assert orders.log.log_end_offset == 1
    assert broker.fetchers.lags().keys() == {payments.partition}


def test_removing_waits_for_a_write_and_nothing_is_written_after(
    broker: FollowingBroker, leader: FakeLeader, port: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A role change can rely on it."""
    writing, may_write = threading.Event(), threading.Event()
    ended: list[bool] = []

    def slow(*arguments: Any) -> Step:
        writing.set()
        assert may_write.wait(TIMEOUT_S)
        ended.append(True)
        return Step.IDLE

    monkeypatch.setattr("ottla.broker.replication.following.take_fetched", slow)
    orders = broker.follow(broker.partition("orders"))
    assert writing.wait(TIMEOUT_S)
    removing = threading.Thread(target=broker.fetchers.remove, args=(orders.partition,))
    removing.start()
    removing.join(0.05)
    assert removing.is_alive()
    may_write.set()
    removing.join(TIMEOUT_S)
    assert ended == [True]


def test_a_fetcher_ends_with_its_last_partition(broker: FollowingBroker, leader: FakeLeader, port: Peer) -> None:
    """And another one comes with the next."""
    orders = broker.follow(broker.partition("orders"))
    leader.wait_for(lambda: leader.waiting)
    threads = [thread for thread in threading.enumerate() if thread.name == "fetcher-0-of-1"]
    broker.fetchers.remove(orders.partition)
    for thread in threads:
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()
    leader.append("orders", [b"a"])
    broker.follow(orders, epoch=1)
    broker.wait_for(lambda: orders.log.log_end_offset == 1)


def test_a_partition_goes_over_to_another_leader(broker: FollowingBroker, leader: FakeLeader, port: Peer) -> None:
    """The role says to whom."""
    orders = broker.follow(broker.partition("orders"))
    leader.append("orders", [b"a"])
    broker.wait_for(lambda: orders.log.log_end_offset == 1)
    other = FakeLeader()
    other.logs["orders", 0] = LeaderLog(epoch=1, end=1, start=0)
    other.append("orders", [b"b"])
    with peer(other.answer, VERSIONS) as listening:
        broker.endpoints[3] = listening.endpoint
        broker.follow(orders, epoch=1, leader=3)
        broker.wait_for(lambda: orders.log.log_end_offset == 2)
        broker.fetchers.stop()


def test_adding_what_is_followed_already_changes_nothing(
    broker: FollowingBroker, leader: FakeLeader, port: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller tells of each change to the ISR."""
    monkeypatch.setattr("ottla.broker.replication.fetcher._SETTLING_SECONDS", 0.0)
    orders = broker.follow(broker.partition("orders"))
    leader.wait_for(lambda: leader.waiting)
    broker.fetchers.add(orders, LEADER)
    leader.append("orders", [b"a"])
    broker.wait_for(lambda: orders.log.log_end_offset == 1)
    assert port.connected == 1


@pytest.mark.parametrize("error", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH])
def test_a_partition_with_an_error_is_tried_again_and_holds_up_nobody(
    broker: FollowingBroker, leader: FakeLeader, port: Peer, error: ErrorCode
) -> None:
    """It leaves the session for the pause."""
    leader.logs["orders", 0].error = error
    leader.append("orders", [b"a"])
    orders = broker.follow(broker.partition("orders"))
    payments = broker.follow(broker.partition("payments"))
    leader.append("payments", [b"a"])
    broker.wait_for(lambda: payments.log.log_end_offset == 1)
    with leader.changed:
        leader.logs["orders", 0].error = ErrorCode.NONE
    broker.wait_for(lambda: orders.log.log_end_offset == 1)


def test_a_fenced_partition_waits_until_it_is_added_again(
    broker: FollowingBroker, leader: FakeLeader, port: Peer
) -> None:
    """In a newer epoch; until then it is not asked for."""
    leader.logs["orders", 0].error = ErrorCode.FENCED_LEADER_EPOCH
    leader.append("orders", [b"a"])
    orders = broker.follow(broker.partition("orders"))
    payments = broker.follow(broker.partition("payments"))
    leader.wait_for(lambda: any(fetch.forgotten_topics_data for fetch in leader.fetches()))
    with leader.changed:
        leader.logs["orders", 0].error = ErrorCode.NONE
    leader.append("payments", [b"a"])
    broker.wait_for(lambda: payments.log.log_end_offset == 1)
    assert orders.log.log_end_offset == 0
    broker.follow(orders, epoch=1)
    broker.wait_for(lambda: orders.log.log_end_offset == 1)


def test_a_partition_whose_handling_fails_is_tried_again(
    broker: FollowingBroker, leader: FakeLeader, port: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault of ours stops neither the thread nor the others."""
    real, failures = take_fetched, [RuntimeError("out of the blue")] * 2

    def flawed(partition: Partition, *arguments: Any) -> Step:
        if partition.partition.topic == "orders" and failures:
            raise failures.pop()
        return real(partition, *arguments)

    monkeypatch.setattr("ottla.broker.replication.following.take_fetched", flawed)
    leader.append("orders", [b"a"])
    leader.append("payments", [b"a"])
    orders, payments = (broker.follow(broker.partition(topic)) for topic in ("orders", "payments"))
    broker.wait_for(lambda: payments.log.log_end_offset == 1)
    broker.wait_for(lambda: orders.log.log_end_offset == 1)
    assert not failures


def test_a_follower_ahead_of_its_leader_truncates_and_goes_on(
    broker: FollowingBroker, leader: FakeLeader, port: Peer
) -> None:
    """As the diverging epoch says."""
    orders = broker.partition("orders")
    orders.log.append_as_follower(batch(0, [b"common"], 0))
    orders.log.append_as_follower(batch(1, [b"lost"], 1))
    log = LeaderLog(epoch=2)
    log.batches = [(0, batch(0, [b"common"], 0)), (1, batch(1, [b"kept"], 2))]
    log.end = log.high_watermark = 2
    log.diverging = EpochEndOffset(epoch=0, end_offset=1)
    leader.logs["orders", 0] = log
    broker.follow(orders, epoch=2)
    broker.wait_for(lambda: orders.log.high_watermark == 2)
    assert contents(orders) == b"".join(data for _, data in log.batches)


@pytest.mark.parametrize(("start", "stop"), [(5, 7), (0, 1)], ids=["too early", "too late"])
def test_a_follower_out_of_range_continues_within_the_leaders_log(
    broker: FollowingBroker, leader: FakeLeader, port: Peer, start: int, stop: int
) -> None:
    """It asks as a replica where the log begins and ends."""
    orders = broker.partition("orders")
    orders.log.append_as_follower(batch(0, [b"a", b"b"], 0))
    log = LeaderLog(epoch=3, start=start, end=start, high_watermark=start)
    for _ in range(start, stop):
        log.append([b"x"])
    leader.logs["orders", 0] = log
    broker.follow(orders, epoch=3)
    broker.wait_for(lambda: orders.log.high_watermark == stop)
    asked = [request for api, _, request in leader.requests if api is Api.LIST_OFFSETS]
    assert [request.replica_id for request in asked] == [FOLLOWER, FOLLOWER]
    assert sorted(row.timestamp for request in asked for row in request.topics[0].partitions) == [-2, -1]
    assert orders.log.log_start_offset == start


def test_a_leader_that_lost_its_sessions_is_asked_for_everything_again(
    broker: FollowingBroker, leader: FakeLeader, port: Peer
) -> None:
    """At once, on the same connection."""
    orders = broker.follow(broker.partition("orders"))
    leader.wait_for(lambda: leader.waiting)
    leader.lose_sessions()
    leader.append("orders", [b"a"])
    broker.wait_for(lambda: orders.log.log_end_offset == 1)
    leader.append("orders", [b"b"])
    broker.wait_for(lambda: orders.log.log_end_offset == 2)
    assert port.connected == 1


def test_a_leader_without_room_for_sessions_is_asked_for_everything_each_time(
    broker: FollowingBroker, port: Peer
) -> None:
    """Which works, at a price."""
    poor = FakeLeader(slots=0)
    poor.logs["orders", 0] = LeaderLog()
    with peer(poor.answer, VERSIONS) as listening:
        broker.endpoints[3] = listening.endpoint
        orders = broker.follow(broker.partition("orders"), leader=3)
        for offset in range(3):
            poor.append("orders", [b"a"])
            broker.wait_for(lambda: orders.log.log_end_offset == offset + 1)  # noqa: B023
        broker.fetchers.stop()
    assert {(fetch.session_id, fetch.session_epoch) for fetch in poor.fetches()} == {(0, 0)}


def test_a_broken_connection_is_made_anew(broker: FollowingBroker, leader: FakeLeader, port: Peer) -> None:
    """After a pause, with a new session."""
    orders = broker.follow(broker.partition("orders"))
    leader.wait_for(lambda: leader.waiting)
    port.break_connections()
    leader.append("orders", [b"a"])
    broker.wait_for(lambda: orders.log.log_end_offset == 1)


def test_a_leader_without_an_address_is_looked_for_again(broker: FollowingBroker, leader: FakeLeader) -> None:
    """LeaderAndIsr may come before UpdateMetadata."""
    leader.append("orders", [b"a"])
    orders = broker.follow(broker.partition("orders"))
    with peer(leader.answer, VERSIONS) as listening:
        broker.endpoints[LEADER] = listening.endpoint
        broker.wait_for(lambda: orders.log.log_end_offset == 1)
        broker.fetchers.stop()


def test_a_leader_that_refuses_fetches_is_asked_again(broker: FollowingBroker, leader: FakeLeader, port: Peer) -> None:
    """After a pause."""
    leader.append("orders", [b"a"])
    leader.refusal = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    orders = broker.follow(broker.partition("orders"))
    leader.wait_for(lambda: len(leader.requests) >= 3)
    with leader.changed:
        leader.refusal = ErrorCode.NONE
    broker.wait_for(lambda: orders.log.log_end_offset == 1)


@pytest.mark.parametrize("newest", [4, 11, 12, 14])
def test_older_leaders_are_asked_in_their_way(broker: FollowingBroker, leader: FakeLeader, newest: int) -> None:
    """By name, and with the replica id in its old place."""
    leader.append("orders", [b"a"])
    with peer(leader.answer, {**VERSIONS, Api.FETCH: Versions(0, newest)}) as listening:
        broker.endpoints[LEADER] = listening.endpoint
        orders = broker.follow(broker.partition("orders"))
        broker.wait_for(lambda: orders.log.log_end_offset == 1)
        broker.fetchers.stop()
    assert {version for api, version, _ in leader.requests if api is Api.FETCH} == {newest}
    assert leader.fetches()[0].replica_id == FOLLOWER


def test_topics_without_an_id_are_asked_for_by_name(broker: FollowingBroker, leader: FakeLeader, port: Peer) -> None:
    """And those with one too, as long as that lasts: a fetch names all topics in the same way."""
    leader.append("orders", [b"a"])
    leader.append("payments", [b"a"])
    leader.append("visits", [b"a"])
    followed = [broker.follow(broker.partition(topic, identifier=UUID_ZERO)) for topic in ("orders", "payments")]
    followed.append(broker.follow(broker.partition("visits")))
    broker.wait_for(lambda: all(partition.log.log_end_offset == 1 for partition in followed))
    for partition in followed[:2]:
        broker.fetchers.remove(partition.partition)
    leader.append("visits", [b"b"])
    broker.wait_for(lambda: followed[2].log.log_end_offset == 2)
    leader.append("visits", [b"c"])
    broker.wait_for(lambda: followed[2].log.log_end_offset == 3)
    assert {version for api, version, _ in leader.requests if api is Api.FETCH} >= {12, 17}


def test_fetchers_share_the_partitions_as_kafka_does() -> None:
    """By Java's hash of the topic."""
    # "orders".hashCode() is -1008770331 in Java.
    assert fetcher_number(TopicPartition("orders", 0), 1) == 0
    assert (
        fetcher_number(TopicPartition("orders", 3), 1000) == abs((-1008770331 * 31 + 3 + 2**31) % 2**32 - 2**31) % 1000
    )


def test_several_fetchers_follow_one_leader(tmp_path: Path, leader: FakeLeader) -> None:
    """Each on its own connection."""
    broker = FollowingBroker(tmp_path, {"num.replica.fetchers": "2"})
    with peer(leader.answer, VERSIONS) as listening:
        broker.endpoints[LEADER] = listening.endpoint
        followed = []
        for index in range(4):
            leader.logs["visits", index] = LeaderLog()
            leader.append("visits", [b"a"], index)
            followed.append(broker.follow(broker.partition("visits", index)))
        broker.wait_for(lambda: all(partition.log.log_end_offset == 1 for partition in followed))
        broker.close()
        assert listening.connected >= 2
