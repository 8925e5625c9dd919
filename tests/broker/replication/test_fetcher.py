"""Fetchers over real logs, against a leader on a loopback port."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from tests.broker.replication.fake_leader import VERSIONS, FakeLeader, LeaderLog, topic_id
from tests.broker.replication.following_broker import (
    BROKER_EPOCH,
    FOLLOWER,
    LEADER,
    TIMEOUT_S,
    FollowingBroker,
    contents,
)
from tests.broker.replication.peer import Peer, peer

from ottla.broker.replication.follower.steps import Step, take_fetched
from ottla.broker.replication.partition import Partition
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode


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
    both = {topic_id("orders"), topic_id("payments")}
    leader.wait_for(lambda: both <= {topic.topic_id for fetch in leader.fetches() for topic in fetch.topics})
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
    monkeypatch.setattr("ottla.broker.replication.follower.fetcher._SETTLING_SECONDS", 0.0)
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

    monkeypatch.setattr("ottla.broker.replication.follower.fetcher.take_fetched", slow)
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
    monkeypatch.setattr("ottla.broker.replication.follower.fetcher._SETTLING_SECONDS", 0.0)
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

    monkeypatch.setattr("ottla.broker.replication.follower.fetcher.take_fetched", flawed)
    leader.append("orders", [b"a"])
    leader.append("payments", [b"a"])
    orders, payments = (broker.follow(broker.partition(topic)) for topic in ("orders", "payments"))
    broker.wait_for(lambda: payments.log.log_end_offset == 1)
    broker.wait_for(lambda: orders.log.log_end_offset == 1)
    assert not failures
