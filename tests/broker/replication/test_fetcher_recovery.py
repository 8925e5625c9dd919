"""Fetchers whose leader is not where they thought, not like it was, or not like they know it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker.replication.fake_leader import VERSIONS, FakeLeader, LeaderLog, batch
from tests.broker.replication.following_broker import (
    FOLLOWER,
    LEADER,
    FollowingBroker,
    contents,
)
from tests.broker.replication.peer import Peer, peer
from tests.kit.waiting import until

from ottla.broker.replication.follower.fetchers import fetcher_number
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.message import Versions
from ottla.protocol.messages.fetch import EpochEndOffset
from ottla.protocol.primitives import UUID_ZERO


def test_a_follower_ahead_of_its_leader_truncates_and_goes_on(
    broker: FollowingBroker, leader: FakeLeader, port: Peer
) -> None:
    """As the diverging epoch says."""
    orders = broker.partition("orders")
    orders.log.append_as_follower(batch(0, [b"common"], 0), 0)
    orders.log.append_as_follower(batch(1, [b"lost"], 1), 1)
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
    orders.log.append_as_follower(batch(0, [b"a", b"b"], 0), 0)
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


def test_a_follower_without_space_waits_until_it_is_told_of_more(
    broker: FollowingBroker, leader: FakeLeader, port: Peer
) -> None:
    """It asks for nothing meanwhile; a topic of coordinators on the same disk is copied on."""
    orders, offsets = broker.partition("orders"), broker.partition("__consumer_offsets")
    leader.logs["__consumer_offsets", 0] = LeaderLog()
    (log_dir,) = broker.logs.dirs
    log_dir.copy_refusal = "low on space"
    leader.append("orders", [b"a"])
    broker.follow(orders)
    broker.follow(offsets)
    leader.append("__consumer_offsets", [b"a"])
    broker.wait_for(lambda: offsets.log.log_end_offset == 1)
    assert orders.log.log_end_offset == 0
    assert not any(topic.topic == "orders" for fetch in leader.fetches() for topic in fetch.topics)

    # It is told, and finds the disk as it was.
    broker.fetchers.resume_copies()
    leader.append("__consumer_offsets", [b"b"])
    broker.wait_for(lambda: offsets.log.log_end_offset == 2)
    assert orders.log.log_end_offset == 0

    log_dir.copy_refusal = None
    broker.fetchers.resume_copies()
    broker.wait_for(lambda: orders.log.log_end_offset == 1)


def test_a_follower_whose_disk_fills_up_meanwhile_stops_and_goes_on(
    broker: FollowingBroker, leader: FakeLeader, port: Peer
) -> None:
    """What came is dropped, and fetched again later."""
    orders = broker.follow(broker.partition("orders"))
    leader.append("orders", [b"a"])
    broker.wait_for(lambda: orders.log.log_end_offset == 1)
    (log_dir,) = broker.logs.dirs
    log_dir.copy_refusal = "low on space"
    leader.append("orders", [b"b"])
    until(lambda: broker.fetchers.waiting_for_space() == 1, "the follower waits")
    assert orders.log.log_end_offset == 1

    log_dir.copy_refusal = None
    broker.fetchers.resume_copies()
    broker.wait_for(lambda: orders.log.log_end_offset == 2)


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
