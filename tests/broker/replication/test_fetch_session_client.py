"""The follower's side of a fetch session, against a leader's side written down in a few lines."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tests.kit.examples import examples

from ottla.broker.config import BrokerConfig
from ottla.broker.replication.follower.fetch_requests import FetchRequests
from ottla.broker.replication.follower.fetch_session_client import (
    NO_SESSION,
    FetchSession,
    SessionFetch,
    SessionPartition,
)
from ottla.broker.replication.follower.follower import FetchPosition
from ottla.protocol.codec import encode
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchResponse
from ottla.protocol.primitives import UUID_ZERO

ID_OF = {"a": b"A" * 16, "b": b"B" * 16, "nameless": UUID_ZERO}
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
named = st.builds(
    lambda topic, index: SessionPartition(topic, ID_OF[topic], index), st.sampled_from("ab"), st.integers(0, 2)
)
partitions = st.one_of(named, st.just(SessionPartition("nameless", UUID_ZERO, 0)))
positions = st.builds(FetchPosition, int64, int32, int32, int64)


@dataclasses.dataclass
class LeadersSide:
    """What a leader keeps of a session."""

    session_id: int = NO_SESSION
    epoch: int = 0
    asked: dict[SessionPartition, FetchPosition] = dataclasses.field(default_factory=dict)

    def take(self, fetch: SessionFetch) -> FetchResponse:
        """Apply a fetch, and answer with the session and nothing else."""
        if fetch.session_epoch == 0:
            self.session_id, self.epoch, self.asked = self.session_id + 1, 0, {}
        elif fetch.session_id != self.session_id:
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=[])
        elif fetch.session_epoch != self.epoch:
            return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, responses=[])
        self.epoch += 1
        self.asked.update(fetch.positions)
        for partition in fetch.forgotten:
            del self.asked[partition]
        return FetchResponse(session_id=self.session_id, responses=[])


@examples(150)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from(["put", "enter"]), partitions, positions),
            st.tuples(st.just("drop"), partitions),
            st.tuples(st.sampled_from(["fetch", "lose the request", "lose the answer", "lose the session"])),
        ),
        max_size=40,
    )
)
def test_after_each_fetch_the_leader_knows_what_is_wanted(steps: list[tuple[object, ...]]) -> None:
    """Whatever is changed between, and whatever gets lost."""
    session, leader, wanted = FetchSession(), LeadersSide(), dict[SessionPartition, FetchPosition]()

    def fetch() -> None:
        for _ in range(2):
            if session.answered(leader.take(session.next_fetch())) is ErrorCode.NONE:
                break
        assert leader.asked == wanted
        assert len(session) == len(wanted)
        assert session.is_by_id == all(partition.topic_id != UUID_ZERO for partition in wanted)

    for step in steps:
        match step:
            case ("put", SessionPartition() as partition, FetchPosition() as position):
                session.put(partition, position)
                wanted[partition] = position
            case ("enter", SessionPartition() as partition, FetchPosition() as position):
                session.enter(partition, position)
                wanted[partition] = position
            case ("drop", SessionPartition() as partition):
                session.drop(partition)
                wanted.pop(partition, None)
            case ("fetch",):
                fetch()
            case ("lose the request",):
                session.next_fetch()
                session.restart()
            case ("lose the answer",):
                leader.take(session.next_fetch())
                session.restart()
            case ("lose the session",):
                leader.session_id += 1000
    fetch()


def entered(*names: SessionPartition) -> FetchSession:
    """A session that has begun with some partitions."""
    session = FetchSession()
    for name in names:
        session.enter(name, FetchPosition(0, 0, 0, 0))
    assert session.next_fetch().session_epoch == 0
    session.answered(FetchResponse(session_id=9, responses=[]))
    return session


ORDERS = SessionPartition("a", ID_OF["a"], 0)


def test_a_fetch_names_what_has_changed_and_nothing_else() -> None:
    """However many partitions there are."""
    session = entered(*(SessionPartition("a", ID_OF["a"], index) for index in range(700)))
    session.put(ORDERS, FetchPosition(1, 0, 0, 0))
    assert session.next_fetch() == SessionFetch(9, 1, {ORDERS: FetchPosition(1, 0, 0, 0)}, {})


def test_a_partition_that_comes_back_begins_the_session_anew() -> None:
    """Or the leader would not repeat what it has told."""
    session = entered(ORDERS)
    session.drop(ORDERS)
    session.enter(ORDERS, FetchPosition(0, 0, 0, 0))
    fetch = session.next_fetch()
    assert (fetch.session_id, fetch.session_epoch) == (9, 0)


def test_the_count_of_fetches_begins_at_one_again() -> None:
    """After the largest number, as the leader's does."""
    session = entered(ORDERS)
    session._epoch = 2**31 - 1
    session.next_fetch()
    session.answered(FetchResponse(session_id=9, responses=[]))
    assert session.next_fetch().session_epoch == 1


@examples(100)
@given(
    st.integers(15, 17),
    st.dictionaries(named, positions, max_size=2),
    st.lists(named, max_size=1),
    int32,
    int32,
    int32,
    int64,
)
def test_fetches_are_packed_as_they_are_declared(
    version: int,
    asked: dict[SessionPartition, FetchPosition],
    forgotten: list[SessionPartition],
    session_id: int,
    session_epoch: int,
    wait_ms: int,
    broker_epoch: int,
) -> None:
    """The short way gives the bytes of the long one."""
    config = BrokerConfig.of({"log.dirs": str(Path("unused"))})
    requests = FetchRequests(5, lambda: broker_epoch, config)
    fetch = SessionFetch(session_id, session_epoch, asked, forgotten)
    assert requests.encoded(version, fetch, wait_ms) == encode(requests.message(version, fetch, wait_ms), version)
