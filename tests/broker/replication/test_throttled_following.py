"""Followers that are throttled: what they leave out of their fetches, and for how long."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker.handlers.data_path import BROKER_ID, Broker, batch, running_broker, topic_id
from tests.broker.replication.recorded_waits import Waiting
from tests.kit.clock import FakeClock

from ottla.broker.replication.follower.fetcher import FollowedPartition, FollowedPartitions
from ottla.broker.replication.throttle import ReplicationThrottle, Side
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData

LEADER = 2


class Follower:
    """What follows two topics of one leader, of which one is throttled."""

    def __init__(self, broker: Broker) -> None:
        self.clock = FakeClock(0.0)
        self.throttle = ReplicationThrottle(Side.FOLLOWER, BROKER_ID, self.clock)
        self.throttle.configure(100)
        self.throttle.set_topic("slow", "*")
        partitions = broker.services.partitions
        self.following = FollowedPartitions(partitions.logs, broker.services.group_commit, 50, self.throttle)
        self.followed = {}
        for topic in ("slow", "fast"):
            broker.lead(topic, leader=LEADER, isr=(LEADER,), replicas=(LEADER, BROKER_ID))
            partition = partitions.find(TopicPartition(topic, 0))
            assert partition is not None
            self.followed[topic] = FollowedPartition(partition)
        self.following.change([], self.followed.values())

    def receive(self, topic: str, *, high_watermark: int) -> None:
        """Get one record of a kilobyte from the leader, as an answer to the last fetch."""
        end = self.followed[topic].partition.log.log_end_offset
        records = batch(b"v" * 1000, base_offset=end, partition_leader_epoch=0)
        data = PartitionData(
            partition_index=0,
            error_code=0,
            high_watermark=high_watermark,
            log_start_offset=0,
            aborted_transactions=None,
            records=records,
        )
        self.following.session.next_fetch()
        response = FetchableTopicResponse(topic=topic, topic_id=topic_id(topic), partitions=[data])
        self.following.take(FetchResponse(error_code=0, session_id=1, responses=[response]))

    @property
    def fetched(self) -> int:
        """How many partitions the next fetch has."""
        return len(self.following.session)


@pytest.fixture
def follower(tmp_path: Path) -> Iterator[Follower]:
    """Broker 1, which follows broker 2."""
    with running_broker(tmp_path, {}) as broker:
        yield Follower(broker)


def test_a_partition_that_lags_is_left_out_until_the_rate_is_kept(follower: Follower) -> None:
    """What it got is appended and told; the others go on."""
    partition = follower.followed["slow"].partition
    waiting = Waiting()
    partition.waits.fetches.watch(waiting, [partition.partition], 60_000)
    before = waiting.asked
    follower.receive("slow", high_watermark=9)
    assert follower.fetched == 1
    assert waiting.asked == before + 1
    due = follower.following.next_due
    assert due is not None
    assert due <= time.monotonic() + 1
    follower.receive("fast", high_watermark=9)
    assert follower.fetched == 1

    follower.following.resume(due)
    assert follower.fetched == 1
    follower.clock.now += 11
    later = follower.following.next_due
    assert later is not None
    follower.following.resume(later)
    assert follower.fetched == 2
    assert follower.following.next_due is None


def test_a_partition_that_has_caught_up_is_fetched_whatever_the_rate(follower: Follower) -> None:
    """Or it would fall out of the ISR."""
    follower.receive("slow", high_watermark=1)
    assert follower.throttle.is_exceeded()
    assert follower.fetched == 2


def test_a_throttle_that_is_lifted_lets_partitions_go_on(follower: Follower) -> None:
    """At the next look, which is never far."""
    follower.receive("slow", high_watermark=9)
    follower.throttle.set_topic("slow", "")
    due = follower.following.next_due
    assert due is not None
    follower.following.resume(due)
    assert follower.fetched == 2


def test_a_new_partition_waits_too(follower: Follower) -> None:
    """How far it lags is not known before it has asked."""
    follower.throttle.record(1_000_000)
    slow = follower.followed["slow"]
    follower.following.change([slow], [FollowedPartition(slow.partition)])
    assert follower.fetched == 1
    assert follower.following.next_due is not None
