"""Fetches of followers whose leader is throttled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.handlers.data_path import BROKER_ID, Broker, batch, running_broker, topic_id
from tests.kit.clock import FakeClock

from ottla.broker.config import BrokerConfig
from ottla.broker.replication.throttle import Throttles
from ottla.protocol.api import Api
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState

IN_SYNC, OUTSIDE = 2, 3
FOREVER_MS = 60_000


@pytest.fixture
def clock() -> FakeClock[float]:
    """Time of the throttle."""
    return FakeClock(0.0)


@pytest.fixture
def broker(tmp_path: Path, clock: FakeClock[float]) -> Iterator[Broker]:
    """The leader of `slow` and `fast`, of which one is throttled; a follower of each is not in sync."""
    with running_broker(tmp_path, {}) as broker:
        broker.racks = {1: None, 2: None, 3: None}
        config = BrokerConfig.of({"zookeeper.connect": "nowhere:2181"})
        throttles = Throttles(BROKER_ID, config, clock)
        throttles.leader.configure(100)
        throttles.leader.set_topic("slow", f"0:{BROKER_ID}")
        broker.services.partitions.throttles = throttles
        for topic in ("slow", "fast"):
            broker.lead(topic, isr=(BROKER_ID, IN_SYNC), replicas=(BROKER_ID, IN_SYNC, OUTSIDE))
            found = broker.services.partitions.find(TopicPartition(topic, 0))
            assert found is not None
            for _ in range(3):
                found.append(batch(b"v" * 1000), required_acks=1)
        yield broker


def fetch(broker: Broker, topic: str, replica: int, offset: int = 0, *, max_wait_ms: int = 0) -> Any:
    """Fetch one batch as a follower; return its answer, or the list that will have it."""
    wanted = FetchPartition(
        partition=0, fetch_offset=offset, current_leader_epoch=0, log_start_offset=0, partition_max_bytes=1
    )
    body = FetchRequest(
        replica_state=ReplicaState(replica_id=replica, replica_epoch=7),
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        topics=[FetchTopic(topic=topic, topic_id=topic_id(topic), partitions=[wanted])],
    )
    response = broker.ask(Api.FETCH, 17, body)
    return response if isinstance(response, list) else response.responses[0].partitions[0]


def test_a_follower_outside_the_isr_gets_nothing_until_the_rate_is_kept(
    broker: Broker, clock: FakeClock[float]
) -> None:
    """It gets an empty answer without an error, and its position is noted all the same."""
    assert len(fetch(broker, "slow", OUTSIDE).records) > 1000

    held = fetch(broker, "slow", OUTSIDE, 1)
    assert (held.error_code, held.records, held.log_start_offset) == (0, b"", 0)
    found = broker.services.partitions.find(TopicPartition("slow", 0))
    assert found is not None
    assert found.follower_positions()[OUTSIDE].log_end_offset == 1
    assert len(fetch(broker, "fast", OUTSIDE, 1).records) > 1000

    clock.now += 11
    assert len(fetch(broker, "slow", OUTSIDE, 1).records) > 1000


def test_a_member_of_the_isr_is_never_held_up_and_counts(broker: Broker) -> None:
    """Or the throttle would take it out of the ISR."""
    assert len(fetch(broker, "slow", IN_SYNC).records) > 1000
    assert len(fetch(broker, "slow", IN_SYNC, 1).records) > 1000
    assert fetch(broker, "slow", OUTSIDE).records == b""


def test_a_held_fetch_waits_though_there_are_records(broker: Broker) -> None:
    """It is not answered by an append, and what it does not get is not counted."""
    assert broker.services.partitions.throttles is not None
    throttle = broker.services.partitions.throttles.leader
    fetch(broker, "slow", OUTSIDE)
    before = throttle.pause_seconds()
    waiting = fetch(broker, "slow", OUTSIDE, 1, max_wait_ms=FOREVER_MS)
    assert waiting == []

    found = broker.services.partitions.find(TopicPartition("slow", 0))
    assert found is not None
    found.append(batch(b"more"), required_acks=1)
    broker.services.partitions.waits.moved(found.partition)
    assert waiting == []
    assert throttle.pause_seconds() == before
    broker.services.partitions.drop(found.partition, delete=False)
    assert len(waiting) == 1
