"""Followers that have everything: a leader looks at their partitions only now and then, and misses nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.handlers.data_path import Broker, batch, running_broker
from tests.broker.handlers.test_fetch_from_leader import FOREVER_MS, OTHER, body, follow
from tests.broker.handlers.test_produce_and_fetch import produce, values
from tests.kit.clock import FakeClock

from ottla.broker.common import purgatory
from ottla.broker.replication.leader.fetch_sessions import FetchSessions
from ottla.broker.replication.partition import Partition
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchRequest

TOPICS = ("t", "u")
IDLE_SECONDS = 2.0


class Follower:
    """A follower with a session at the leader of two partitions."""

    def __init__(self, broker: Broker, clock: FakeClock[float]) -> None:
        self.broker = broker
        self.clock = clock
        listed = body()
        listed.topics.extend(body(topic="u").topics)
        listed.session_epoch = 0
        opened = broker.ask(Api.FETCH, 17, listed)
        self._session_id = opened.session_id
        self._epoch = 0

    def fetch(self, *listed: FetchRequest, max_wait_ms: int = FOREVER_MS) -> list[Any]:
        """Fetch, with changes or without; return the list that will have the response."""
        self._epoch += 1
        request = body(max_wait_ms=max_wait_ms, session_id=self._session_id, session_epoch=self._epoch)
        request.topics = [topic for each in listed for topic in each.topics]
        answers = self.broker.ask(Api.FETCH, 17, request)
        return answers if isinstance(answers, list) else [answers]

    def fetch_to_the_end(self, *listed: FetchRequest) -> None:
        """Fetch, and get an empty response after the time to wait."""
        answers = self.fetch(*listed)
        assert answers == []
        self.broker.services.partitions.waits.fetches.expire(float("inf"))
        assert [each.responses for each in answers] == [[]]


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The topics that the leader has looked at, one after the other."""
    seen: list[str] = []
    note = Partition.note_idle_follower

    def noted(partition: Partition, *arguments: Any) -> bool:
        seen.append(partition.partition.topic)
        return note(partition, *arguments)

    monkeypatch.setattr(Partition, "note_idle_follower", noted)
    return seen


@pytest.fixture
def follower(tmp_path: Path, looks: list[str]) -> Iterator[Follower]:
    """One that has fetched twice, and has everything: the first time it learned the high watermarks."""
    clock = FakeClock(0.0)
    sessions = FetchSessions(10, clock, idle_seconds_max=IDLE_SECONDS)
    with running_broker(tmp_path, {}, fetch_sessions=sessions) as broker:
        broker.racks = {1: None, 2: None, 3: None}
        for topic in TOPICS:
            broker.lead(topic, isr=(1, 2, 3), replicas=(1, 2, 3))
        made = Follower(broker, clock)
        made.fetch_to_the_end()
        made.fetch_to_the_end()
        looks.clear()
        yield made


def test_the_leader_looks_at_idle_partitions_now_and_then(follower: Follower, looks: list[str]) -> None:
    """Often enough to know that the follower is still there."""
    for _ in range(3):
        follower.fetch_to_the_end()
    assert looks == []
    follower.clock.now += IDLE_SECONDS
    follower.fetch_to_the_end()
    assert looks == list(TOPICS)
    follower.fetch_to_the_end()
    assert looks == list(TOPICS)


def test_an_append_between_two_fetches_is_found(follower: Follower, looks: list[str]) -> None:
    """Without a look at the others."""
    produce(follower.broker, batch(b"a"), topic="u")
    (response,) = follower.fetch()
    ((answer,),) = [topic.partitions for topic in response.responses]
    assert values(answer) == [b"a"]
    assert looks == []


def test_a_fetch_that_does_not_wait_finds_what_is_there(follower: Follower) -> None:
    """Only the purgatory knows what has changed, and such a fetch does not go there."""
    produce(follower.broker, batch(b"a"), topic="u")
    (response,) = follower.fetch(max_wait_ms=0)
    ((answer,),) = [topic.partitions for topic in response.responses]
    assert values(answer) == [b"a"]


def test_an_append_wakes_a_fetch_that_waits(follower: Follower) -> None:
    """As ever; and the next fetch says where the follower is now, so everything is looked at."""
    answers = follower.fetch()
    assert answers == []
    produce(follower.broker, batch(b"a"))
    assert len(answers) == 1
    assert follower.fetch(body(1)) == []


def test_a_role_that_was_lost_between_two_fetches_is_told(follower: Follower) -> None:
    """The follower must look for the new leader."""
    follower.broker.lead("t", leader=OTHER, epoch=1, isr=(1, 2, 3), replicas=(1, 2, 3))
    (response,) = follower.fetch()
    ((answer,),) = [topic.partitions for topic in response.responses]
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_partitions_are_looked_at_if_too_much_has_happened_since(follower: Follower, looks: list[str]) -> None:
    """The purgatory remembers the last changes only."""
    for number in range(purgatory._RECENT_MAX + 1):
        follower.broker.services.partitions.waits.fetches.check(number)
    follower.fetch_to_the_end()
    assert looks == list(TOPICS)


def test_a_follower_that_is_not_in_sync_is_looked_at_each_time(follower: Follower, looks: list[str]) -> None:
    """It has everything, but its fetches are what brings it back into the ISR."""
    follower.broker.lead("t", epoch=1, isr=(1, 3), replicas=(1, 2, 3))
    listed = body(epoch=1)
    follower.fetch(listed)
    follow(follower.broker, 0, replica=OTHER, epoch=1)
    for _ in range(3):
        looks.clear()
        follower.fetch()
        follower.broker.services.partitions.waits.fetches.expire(float("inf"))
        assert looks == list(TOPICS)


def test_a_change_by_a_fetch_that_overtook_is_not_forgotten(follower: Follower, looks: list[str]) -> None:
    """A follower waits for its responses; what does not, must not miss records either."""
    first = follower.fetch()
    second = follower.fetch(body(0, topic="u"))
    follower.broker.services.partitions.waits.fetches.expire(float("inf"))
    assert (len(first), len(second)) == (1, 1)
    looks.clear()
    follower.fetch_to_the_end()
    assert looks == list(TOPICS)
