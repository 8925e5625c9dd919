"""The throttles of replication, with a clock of their own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.clock import FakeClock

from ottla.broker.config import BrokerConfig, TopicConfig
from ottla.broker.config.option import LONG_MAX
from ottla.broker.replication.throttle import ReplicationThrottle, Side, Throttles
from ottla.protocol.identifiers import TopicPartition

NODE_ID = 7
ORDERS = TopicPartition("orders", 3)


def throttle(clock: FakeClock[float], rate: int = 100) -> ReplicationThrottle:
    """A throttle over three samples of a second."""
    made = ReplicationThrottle(Side.LEADER, NODE_ID, clock, samples_max=3, sample_seconds=1.0)
    made.configure(rate)
    return made


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", False),
        ("*", True),
        ("3:7", True),
        ("1:7,3:7", True),
        # Another broker, another partition, and what is no list at all.
        ("3:8", False),
        ("2:7", False),
        ("3", False),
        ("a:b,3:7:1", False),
    ],
)
def test_a_replica_is_throttled_where_its_topic_names_it(text: str, expected: bool) -> None:
    """By partition and broker, or all."""
    made = throttle(FakeClock(1000.0))
    made.set_topic("orders", text)

    assert made.is_throttled(ORDERS) is expected
    assert not made.is_throttled(TopicPartition("others", 3))


def test_what_is_set_for_a_topic_replaces_what_was() -> None:
    """Also with nothing."""
    made = throttle(FakeClock(1000.0))
    made.set_topic("orders", "*")
    made.set_topic("orders", "")
    assert not made.is_throttled(ORDERS)


def test_without_a_rate_nothing_is_too_much() -> None:
    """The default is no limit."""
    made = ReplicationThrottle(Side.FOLLOWER, NODE_ID, FakeClock(1000.0))
    made.record(LONG_MAX)
    assert not made.is_exceeded()


def test_a_burst_is_paid_for_by_a_pause() -> None:
    """Until what was copied, spread over the time since, is the rate."""
    clock = FakeClock(1000.0)
    made = throttle(clock)
    made.record(100)
    assert not made.is_exceeded()
    made.record(100)
    assert made.is_exceeded()
    assert made.pause_seconds() == 2.0

    clock.now += 1.9
    assert made.is_exceeded()
    clock.now += 0.1
    assert not made.is_exceeded()


def test_old_samples_count_no_more() -> None:
    """However much was copied, after the window it is forgotten."""
    clock = FakeClock(1000.0)
    made = throttle(clock)
    made.record(1_000_000)
    assert made.pause_seconds() == 3.0
    clock.now += 3.0
    assert not made.is_exceeded()


def test_another_rate_takes_effect_at_once() -> None:
    """On what was copied before, too."""
    made = throttle(FakeClock(1000.0))
    made.record(150)
    assert made.is_exceeded()
    made.configure(200)
    assert not made.is_exceeded()
    made.configure(0)
    assert made.is_exceeded()


@given(st.lists(st.integers(1, 500), min_size=1, max_size=40), st.integers(0, 1000))
def test_whoever_keeps_the_pauses_may_soon_go_on(sizes: list[int], rate: int) -> None:
    """No pause is longer than what the window remembers, and there are no more of them than samples."""
    clock = FakeClock(1000.0)
    made = throttle(clock, rate)
    for size in sizes:
        made.record(size)
        pauses = 0
        while made.is_exceeded():
            pause = made.pause_seconds()
            assert pause < 3.001
            clock.now += pause + 0.001
            pauses += 1
            assert pauses <= 4


def test_options_of_broker_and_topic_are_taken() -> None:
    """Each side has its own."""
    config = BrokerConfig.of({"zookeeper.connect": "nowhere:2181", "broker.id": "7"})
    throttles = Throttles(NODE_ID, config, FakeClock(1000.0))
    throttles.set_topic("orders", TopicConfig(config, {"leader.replication.throttled.replicas": "3:7,4:7"}))
    assert throttles.leader.is_throttled(ORDERS)
    assert not throttles.follower.is_throttled(ORDERS)

    throttles.leader.record(10_000)
    throttles.follower.record(10_000)
    throttles.configure(config.with_dynamic({}, {"leader.replication.throttled.rate": "5"}))
    assert throttles.leader.is_exceeded()
    assert not throttles.follower.is_exceeded()
    throttles.set_topic("orders", TopicConfig(config, {"follower.replication.throttled.replicas": "*"}))
    assert throttles.follower.is_throttled(ORDERS)
    assert not throttles.leader.is_throttled(ORDERS)
