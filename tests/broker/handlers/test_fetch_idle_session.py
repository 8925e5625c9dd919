"""Followers that have everything: a leader looks at what has changed, at all else now and then, and misses nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.broker.handlers.data_path import Broker, batch, running_broker, topic_id
from tests.broker.handlers.test_fetch_from_leader import FOREVER_MS, OTHER, body, follow, partition_of
from tests.broker.handlers.test_produce_and_fetch import produce, values
from tests.kit.clock import FakeClock

from ottla.broker.replication.leader.fetch_sessions import FetchSessions
from ottla.broker.replication.partition import Partition
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchRequest, ForgottenTopic
from ottla.protocol.records import batches

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

    def fetch(self, *listed: FetchRequest, forgotten: tuple[str, ...] = (), **fields: Any) -> list[Any]:
        """Fetch, with changes or without; return the list that will have the response."""
        self._epoch += 1
        fields = {"max_wait_ms": FOREVER_MS, **fields}
        request = body(session_id=self._session_id, session_epoch=self._epoch, **fields)
        request.topics = [topic for each in listed for topic in each.topics]
        request.forgotten_topics_data = [
            ForgottenTopic(topic=topic, topic_id=topic_id(topic), partitions=[0]) for topic in forgotten
        ]
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


def leading(broker: Broker, clock: FakeClock[float]) -> Broker:
    """Have a broker lead both partitions, and go by this clock when it looks at all."""
    fetches = broker.services.partitions.waits.fetches
    sessions = FetchSessions(10, fetches, clock, idle_seconds_max=IDLE_SECONDS)
    broker.services = replace(broker.services, fetch_sessions=sessions)
    broker.racks = {1: None, 2: None, 3: None}
    for topic in TOPICS:
        broker.lead(topic, isr=(1, 2, 3), replicas=(1, 2, 3))
    return broker


@pytest.fixture
def follower(tmp_path: Path, looks: list[str]) -> Iterator[Follower]:
    """One that has fetched twice, and has everything: the first time it learned the high watermarks."""
    clock = FakeClock(0.0)
    with running_broker(tmp_path, {}) as broker:
        made = Follower(leading(broker, clock), clock)
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
    assert looks == ["u"]


def test_a_fetch_that_does_not_wait_finds_what_is_there(follower: Follower) -> None:
    """It does not go to purgatory, but what has changed was noted there."""
    produce(follower.broker, batch(b"a"), topic="u")
    (response,) = follower.fetch(max_wait_ms=0)
    ((answer,),) = [topic.partitions for topic in response.responses]
    assert values(answer) == [b"a"]


def test_an_append_wakes_a_fetch_that_waits(follower: Follower, looks: list[str]) -> None:
    """As ever; the next fetch says where the follower is now, and nothing else is looked at."""
    answers = follower.fetch()
    assert answers == []
    produce(follower.broker, batch(b"a"))
    assert len(answers) == 1
    assert follower.fetch(body(1)) == []
    assert set(looks) <= {"t"}


def test_records_add_up_over_partitions_that_were_idle(follower: Follower) -> None:
    """A follower may want many bytes at a time."""
    record = batch(b"a")
    answers = follower.fetch(min_bytes=2 * len(record))
    produce(follower.broker, record)
    assert answers == []
    produce(follower.broker, record, topic="u")
    (response,) = answers
    assert [values(each.partitions[0]) for each in response.responses] == [[b"a"], [b"a"]]


def test_a_new_high_watermark_is_told_with_the_next_response(follower: Follower) -> None:
    """Nothing is sent for it alone while the fetch waits, but it is not forgotten."""
    produce(follower.broker, batch(b"a"), topic="u")
    follower.fetch()
    answers = follower.fetch(body(1, topic="u"))
    follow(follower.broker, 1, topic="u", replica=OTHER)
    assert answers == []
    follower.broker.services.partitions.waits.fetches.expire(float("inf"))
    ((told,),) = [each.partitions for each in answers[0].responses]
    assert told.high_watermark == 1
    follower.fetch_to_the_end()


def test_a_role_that_was_lost_between_two_fetches_is_told(follower: Follower) -> None:
    """The follower must look for the new leader."""
    follower.broker.lead("t", leader=OTHER, epoch=1, isr=(1, 2, 3), replicas=(1, 2, 3))
    (response,) = follower.fetch()
    ((answer,),) = [topic.partitions for topic in response.responses]
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_what_happens_to_others_is_no_reason_to_look(follower: Follower, looks: list[str]) -> None:
    """However much it is."""
    for number in range(1000):
        follower.broker.services.partitions.waits.fetches.check(number)
    follower.fetch_to_the_end()
    assert looks == []


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
        assert looks == ["t"]


def test_a_fetch_that_overtakes_costs_no_records(follower: Follower) -> None:
    """A follower waits for its responses; what does not, must not miss records either."""
    first = follower.fetch()
    second = follower.fetch(body(0, topic="u"))
    produce(follower.broker, batch(b"a"), topic="u")
    assert [values(answers[0].responses[0].partitions[0]) for answers in (first, second)] == [[b"a"], [b"a"]]
    (third,) = follower.fetch()
    assert values(third.responses[0].partitions[0]) == [b"a"]


def test_a_broker_that_registers_again_is_looked_at(follower: Follower, looks: list[str]) -> None:
    """Its fetches count in another life of the follower."""
    answers = follower.fetch(broker_epoch=8)
    assert answers == []
    assert len(follower.broker.services.fetch_sessions) == 1
    follower.broker.services.partitions.waits.fetches.expire(float("inf"))
    follower.fetch(broker_epoch=8)
    assert looks == list(TOPICS)


def test_a_partition_that_is_forgotten_is_not_sent(follower: Follower) -> None:
    """Nor when it changes later."""
    follower.fetch(forgotten=("u",))
    follower.broker.services.partitions.waits.fetches.expire(float("inf"))
    answers = follower.fetch()
    produce(follower.broker, batch(b"a"), topic="u")
    assert answers == []
    produce(follower.broker, batch(b"b"))
    (response,) = answers
    assert [each.topic_id for each in response.responses] == [topic_id("t")]


def test_a_partition_that_comes_back_is_sent(follower: Follower) -> None:
    """Forgotten with one fetch, listed with another; or both with one, which leaves it out."""
    follower.fetch(forgotten=("u",))
    follower.broker.services.partitions.waits.fetches.expire(float("inf"))
    produce(follower.broker, batch(b"a"), topic="u")
    (response,) = follower.fetch(body(0, topic="u"))
    assert values(response.responses[0].partitions[0]) == [b"a"]

    follower.fetch(body(1, topic="u"), forgotten=("u",))
    follower.broker.services.partitions.waits.fetches.expire(float("inf"))
    produce(follower.broker, batch(b"b"), topic="u")
    assert follower.fetch() == []


_APPEND, _FETCH, _OTHER_FETCHES, _WAITING_FETCH, _LOOK_AT_ALL, _LEAD_ANEW, _RELIST = range(7)


@given(st.lists(st.tuples(st.integers(0, 6), st.sampled_from(TOPICS)), max_size=40))
def test_a_follower_that_goes_on_has_everything_in_the_end(steps: list[tuple[int, str]]) -> None:
    """Records and high watermarks, in whatever order things happen."""
    with tempfile.TemporaryDirectory() as directory, running_broker(Path(directory), {}) as broker:
        clock = FakeClock(0.0)
        copies = _Copies(leading(broker, clock))
        for step, topic in steps:
            if step == _APPEND:
                produce(broker, batch(b"a"), topic=topic)
            elif step == _FETCH:
                copies.round(max_wait_ms=0)
            elif step == _OTHER_FETCHES:
                copies.other_follower_catches_up(topic)
            elif step == _WAITING_FETCH:
                copies.round(between=lambda topic=topic: produce(broker, batch(b"b"), topic=topic))
            elif step == _LOOK_AT_ALL:
                clock.now += IDLE_SECONDS
            elif step == _LEAD_ANEW:
                copies.lead_anew(topic)
            else:
                copies.positions_changed.add(topic)
        for topic in TOPICS:
            copies.other_follower_catches_up(topic)
        # Records, then the position, then the high watermark that this has moved.
        for _ in range(3):
            copies.round(max_wait_ms=0)
        for topic in TOPICS:
            copies.other_follower_catches_up(topic)
        copies.round(max_wait_ms=0)
        ends = {topic: partition_of(broker, topic).log.log_end_offset for topic in TOPICS}
        assert copies.ends == ends
        assert copies.high_watermarks == ends == {t: partition_of(broker, t).log.high_watermark for t in TOPICS}


class _Copies:
    """A follower as ours is: it lists a partition when its position has changed, and counts what it has."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.epochs = dict.fromkeys(TOPICS, 0)
        self.ends = dict.fromkeys(TOPICS, 0)
        self.high_watermarks = dict.fromkeys(TOPICS, 0)
        self.positions_changed: set[str] = set()
        self._follower = Follower(broker, FakeClock(0.0))

    def round(self, between: Any = lambda: None, **fields: Any) -> None:
        """Fetch once, and take what comes; `between` happens while the fetch may wait."""
        listed = [body(self.ends[topic], topic=topic, epoch=self.epochs[topic]) for topic in self.positions_changed]
        self.positions_changed = set()
        answers = self._follower.fetch(*listed, **fields)
        between()
        self.broker.services.partitions.waits.fetches.expire(float("inf"))
        for each in answers[0].responses:
            (answer,) = each.partitions
            topic = each.topic_id.decode().rstrip("-")
            if answer.error_code:
                # The follower hears of the new epoch from the controller.
                self.positions_changed.add(topic)
                continue
            for got in batches(answer.records or b"", strict=True):
                assert got.base_offset == self.ends[topic]
                self.ends[topic] = got.next_offset
                self.positions_changed.add(topic)
            self.high_watermarks[topic] = min(answer.high_watermark, self.ends[topic])
            if answer.high_watermark > self.ends[topic]:
                self.positions_changed.add(topic)

    def other_follower_catches_up(self, topic: str) -> None:
        """Have the other replica confirm all records."""
        end = partition_of(self.broker, topic).log.log_end_offset
        follow(self.broker, end, topic=topic, replica=OTHER, epoch=self.epochs[topic])

    def lead_anew(self, topic: str) -> None:
        """Have the same broker lead in a new epoch."""
        self.epochs[topic] += 1
        self.broker.lead(topic, epoch=self.epochs[topic], isr=(1, 2, 3), replicas=(1, 2, 3))
        self.positions_changed.add(topic)
